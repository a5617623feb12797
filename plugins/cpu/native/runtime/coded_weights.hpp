// Packs the integers and numbers of a format of few bits into the panels that the kernels read.
#pragma once

#include <memory>
#include <vector>

#include "kernels/kernel_table.hpp"
#include "runtime/huge_page_buffer.hpp"
#include "runtime/thread_pool.hpp"

namespace specserve {

// Scales or offsets: the number of a group is a unit, or a unit times a step. All [outputs][...], row by row.
struct NumberRows {
    const float* units = nullptr;    // [outputs][groups / groups_of_unit]; null: there are no such numbers
    const uint8_t* steps = nullptr;  // [outputs][groups]; null: 1
    bool signed_steps = false;
    int groups_of_unit = 1;
};

// Rows of integers, and their numbers by groups of `group_size` inputs: 16, or a multiple of 32.
struct CodedRows {
    const int8_t* integers;  // [outputs][in_features]
    int outputs;
    int group_size;
    NumberRows scales, offsets;
    int bits;                    // of a code: 4, 5, 6 or 8
    std::vector<int8_t> levels;  // ascending: the integers that codes stand for, where they are not consecutive
    int lowest;                  // the least integer
};

// The panels of a linear map, of parts below each other that may differ in form.
class CodedMatrix {
   public:
    explicit CodedMatrix(int in_features) : in_features_(in_features) {}

    // Below the parts that are there, which have whole panels.
    void add(ThreadPool& pool, const CodedRows& rows);

    // Until the next part is added.
    const CodedPanel* panels() const { return panels_.data(); }
    int in_features() const { return in_features_; }
    int outputs() const { return outputs_; }

    // The weights of one output: [in_features], each as float32 has it.
    void widen(int output, float* weights) const;

   private:
    int in_features_, outputs_ = 0;
    std::vector<std::unique_ptr<CodedForm>> forms_;
    std::vector<HugePageBuffer> buffers_;
    std::vector<CodedPanel> panels_;
};

}  // namespace specserve
