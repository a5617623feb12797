// The rows of a sampler's call, as Python describes them one by one.
#pragma once

#include <optional>
#include <utility>

#include "bindings/bind.hpp"
#include "ops/sampler.hpp"

namespace specserve {

inline Logits to_logits(const Array& a) {
    const float* data = checked_data<float>(a, "logits", {kAny, kAny}, 1);
    if (a.shape(1) < 1 || a.shape(1) > INT32_MAX / 2)
        throw std::invalid_argument("logits must have columns; got " + shape_string(a) + ".");
    return {data, a.stride(0), static_cast<int>(a.shape(0)), static_cast<int>(a.shape(1))};
}

inline void check_index(int64_t index, int64_t size, const char* name) {
    if (index < 0 || index >= size)
        throw std::invalid_argument(std::string(name) + " must be in [0, " + std::to_string(size) + "); got " +
                                    std::to_string(index) + ".");
}

// Builds TargetRows: `add_row`, then the edits of its logits.
class TargetRowsBuilder {
   public:
    void add_row(int64_t row, uint64_t seed, int64_t index, double temperature, int64_t top_k, double top_p,
                 double min_p) {
        if (index < 0) throw std::invalid_argument("index must be at least 0; got " + std::to_string(index) + ".");
        targets_.rows.push_back({row, seed, index, static_cast<float>(temperature), top_k, top_p, min_p, nullptr,
                                 targets_.edits.size(), 0});
    }
    // Replaces the row's logits: the result of processors that make no edits.
    void replace_logits(nb::handle logits) {
        std::vector<float> copy;
        append(logits, "logits", kAny, copy);
        TargetRow& row = last_row();
        replacements_.push_back(std::move(copy));
        row.replacement = replacements_.back().data();
    }
    void penalize(nb::handle ids, nb::handle counts, double repetition, double presence, double frequency) {
        add_edit(LogitEdit::penalize, ids, counts, static_cast<float>(repetition), static_cast<float>(presence),
                 static_cast<float>(frequency));
    }
    void shift(nb::handle ids, nb::handle values) { add_edit(LogitEdit::shift, ids, values); }
    void keep_only(nb::handle ids) { add_edit(LogitEdit::keep_only, ids); }
    void forbid(nb::handle ids) { add_edit(LogitEdit::forbid, ids); }
    void keep_bits(nb::handle bits) {
        TargetRow& row = last_row();
        size_t offset = targets_.bits.size();
        int64_t count = append(bits, "bits", kAny, targets_.bits);
        targets_.edits.push_back({LogitEdit::keep_bits, offset, 0, static_cast<int>(count)});
        ++row.num_edits;
    }

    const TargetRows& checked(const Logits& logits) const {
        for (const TargetRow& row : targets_.rows) check_index(row.row, logits.count, "row");
        for (int64_t id : targets_.ids) check_index(id, logits.size, "token");
        int words = (logits.size + 31) / 32;
        for (const LogitEdit& edit : targets_.edits)
            if (edit.kind == LogitEdit::keep_bits && edit.count != words)
                throw std::invalid_argument("bits must be [" + std::to_string(words) + "], one bit per token; got [" +
                                            std::to_string(edit.count) + "].");
        for (const std::vector<float>& row : replacements_)
            if (static_cast<int64_t>(row.size()) != logits.size)
                throw std::invalid_argument("a processor's logits must be [" + std::to_string(logits.size) +
                                            "]; got [" + std::to_string(row.size()) + "].");
        return targets_;
    }

   private:
    TargetRow& last_row() {
        if (targets_.rows.empty()) throw std::invalid_argument("there is no row yet: call add_row first.");
        return targets_.rows.back();
    }
    // The edit is added last, after its lists: if one of them throws, the targets stay valid without the edit.
    void add_edit(LogitEdit::Kind kind, nb::handle ids, nb::handle values = {}, float repetition = 1.0f,
                  float presence = 0.0f, float frequency = 0.0f) {
        TargetRow& row = last_row();
        size_t ids_offset = targets_.ids.size(), values_offset = targets_.values.size();
        int64_t count = append(ids, "ids", kAny, targets_.ids);
        if (values.is_valid()) append(values, "values", count, targets_.values);
        targets_.edits.push_back(
            {kind, ids_offset, values_offset, static_cast<int>(count), repetition, presence, frequency});
        ++row.num_edits;
    }

    TargetRows targets_;
    std::vector<std::vector<float>> replacements_;
};

// Per row `count` tokens, and their probabilities.
inline nb::tuple to_tuple(const std::vector<DraftToken>& drafts) {
    std::vector<int64_t> tokens;
    std::vector<float> probabilities;
    for (const DraftToken& draft : drafts) {
        tokens.push_back(draft.token);
        probabilities.push_back(draft.probability);
    }
    return nb::make_tuple(std::move(tokens), std::move(probabilities));
}

inline void check_draft_count(int count, int size) {
    if (count < 1 || count > size)
        throw std::invalid_argument("count must be in [1, " + std::to_string(size) + "]; got " + std::to_string(count) +
                                    ".");
}

inline void check_edits(bool has_ids, const TargetRows& targets) {
    if (has_ids && !targets.edits.empty())
        throw std::invalid_argument("edits name the target's tokens: ids must be None.");
}

}  // namespace specserve
