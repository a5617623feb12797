// Weights of few bits: how they lie in memory, and what they are multiplied by.
//
// A weight is an integer times a scale, plus an offset; scales and offsets are those of its output and of 16 or 32
// inputs. Integers are kept as codes of 4, 5, 6 or 8 bits: the integer less the lowest one, or its place in a table.
#pragma once

#include "kernels/common.hpp"
#include "kernels/half.hpp"

namespace specserve {

constexpr int kBlockInputs = 32;                       // of a block: codes that are unpacked together
constexpr int kQuads = kBlockInputs / 4;               // a dot instruction of bytes takes four inputs
constexpr int kQuadBytes = 4 * kLanes;                 // codes of a quad, in bytes: [16 outputs][4 inputs]
constexpr int kNibbleBytes = kQuads / 2 * kQuadBytes;  // of a block: lower halves are even quads, upper halves odd ones

// So many sums of two products of codes below 2^bits with inputs fit into 16 bits.
template <int bits>
constexpr int kShortSums = bits <= 5 ? 4 : 2;

// A number of a group of inputs: a unit, or a unit times a step of 8 bits.
enum class Unit : uint8_t { kNone, kHalf, kBf16, kFloat };
enum class Step : uint8_t { kNone, kUnsigned, kSigned };

struct NumberForm {
    Unit unit = Unit::kNone;
    Step step = Step::kNone;
    int groups_of_unit = 1;  // consecutive groups that share a unit

    int unit_bytes() const { return unit == Unit::kNone ? 0 : unit == Unit::kFloat ? 4 : 2; }
};

constexpr ptrdiff_t bytes_of_block(int bits) { return ptrdiff_t{kLanes} * kBlockInputs * bits / 8; }

// How the weights of a panel are kept: codes [block][code bytes], see `unpack` in coded-inl.hpp, and behind them the
// numbers.
struct CodedForm {
    int bits = 8;    // 4, 5, 6 or 8
    int lowest = 0;  // the integer of code 0; what a table holds is counted from there, too
    bool has_table = false;
    uint8_t table[16] = {};
    int groups_of_block = 1;  // 1 or 2: groups of 32 or of 16 inputs
    NumberForm scales, offsets;
    ptrdiff_t panel_bytes = 0;

    ptrdiff_t block_bytes() const { return bytes_of_block(bits); }
};

// The numbers of a panel's groups: units [group / groups_of_unit][16 outputs], steps [group][16 outputs].
struct Numbers {
    const uint8_t* units = nullptr;
    const uint8_t* steps = nullptr;
};

struct CodedPanel {
    const CodedForm* form;
    const uint8_t* codes;
    Numbers scales, offsets;
};

// The panels of a linear map, which may differ in form: [num_panels].
struct CodedWeights {
    const CodedPanel* panels = nullptr;
    bool wide_inputs = false;  // inputs are multiplied in float32, and not in 8 bits

    explicit operator bool() const { return panels; }
};

// 32 inputs of a row in 8 bits, symmetric.
struct InputBlock {
    int8_t values[kBlockInputs];
    float scale;
    float scaled_sum;  // the scale times the sum of the values
    int32_t sums[2];   // of the first 16 values, and of the others
};

// Rows as linear maps with coded weights multiply them: in blocks, or widened to float32.
struct CodedInputs {
    const InputBlock* blocks = nullptr;  // [count][stride]
    const float* wide = nullptr;         // [count][stride]
    ptrdiff_t stride = 0;
};

}  // namespace specserve
