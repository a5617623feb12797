// The tokens of a draft model's logits, as the target numbers them.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "bindings/sampler.hpp"

namespace specserve {

class DraftVocabulary {
   public:
    // ids: the target's id of each of `size` columns, none for the same. Later passes read the rows of drafted tokens
    // in tables of `num_rows`: none may be outside.
    DraftVocabulary(std::optional<Array> ids, int size, int num_rows) : ids_(std::move(ids)), size_(size) {
        int64_t smallest = 0, largest = size - 1;
        if (ids_) {
            data_ = checked_data<int64_t>(*ids_, "draft_ids", {size});
            auto [low, high] = std::minmax_element(data_, data_ + size);
            smallest = *low;
            largest = *high;
        }
        check_index(smallest, num_rows, "draft token");
        check_index(largest, num_rows, "draft token");
    }

    // Null for the same ids.
    const int64_t* of_target(const TargetRows& targets, int count) const {
        check_draft_count(count, size_);
        check_edits(ids_.has_value(), targets);
        return data_;
    }

   private:
    std::optional<Array> ids_;
    const int64_t* data_ = nullptr;
    int size_;
};

}  // namespace specserve
