// Weights of few bits, as Python has them.
#pragma once

#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/arrays.hpp"
#include "kernels/half.hpp"
#include "runtime/coded_weights.hpp"

namespace specserve {

// Scales or offsets of groups. units: [outputs, groups / n] float32; steps: [outputs, groups] int8 or uint8.
struct CodedNumbers {
    Array units;
    std::optional<Array> steps;
};

// Rows of a weight of one form.
struct CodedPart {
    Array integers;  // [outputs, in] int8
    int group_size;
    int bits;
    std::vector<int> levels;  // the integers that codes stand for, ascending; two of them: the least and the greatest
    CodedNumbers scales;
    std::optional<CodedNumbers> offsets;
};

inline NumberRows checked_numbers(const CodedNumbers& numbers, const char* name, int outputs, int groups) {
    const float* units = checked_data<float>(numbers.units, name, {outputs, kAny});
    int count = static_cast<int>(numbers.units.shape(1));
    if (!numbers.steps) {
        if (count != groups) throw_mismatch<float>(numbers.units, name, {outputs, groups});
        return {units, nullptr, false, 1};
    }
    const Array& steps = *numbers.steps;
    if (count < 1 || groups % count)
        throw std::invalid_argument(std::string(name) + ": " + std::to_string(count) + " units cannot be shared by " +
                                    std::to_string(groups) + " groups.");
    bool is_signed = steps.dtype() == nb::dtype<int8_t>();
    const void* data = is_signed ? static_cast<const void*>(checked_data<int8_t>(steps, name, {outputs, groups}))
                                 : checked_data<uint8_t>(steps, name, {outputs, groups});
    return {units, static_cast<const uint8_t*>(data), is_signed, groups / count};
}

inline CodedRows checked_rows(const CodedPart& part) {
    const int8_t* integers = checked_data<int8_t>(part.integers, "integers", {kAny, kAny});
    int outputs = static_cast<int>(part.integers.shape(0)), inputs = static_cast<int>(part.integers.shape(1));
    if (outputs < 1 || inputs < 1)
        throw std::invalid_argument("integers must have outputs and inputs; got " + shape_string(part.integers) + ".");
    if (part.group_size != kBlockInputs / 2 && (part.group_size < 1 || part.group_size % kBlockInputs))
        throw std::invalid_argument("group_size must be 16 or a multiple of 32; got " +
                                    std::to_string(part.group_size) + ".");
    if (part.bits != 4 && part.bits != 5 && part.bits != 6 && part.bits != 8)
        throw std::invalid_argument("bits must be 4, 5, 6 or 8; got " + std::to_string(part.bits) + ".");
    const std::vector<int>& levels = part.levels;
    if (levels.size() < 2 || levels.size() > 16 || !std::is_sorted(levels.begin(), levels.end()) ||
        levels.front() < -128 || levels.back() > 127)
        throw std::invalid_argument("levels must be 2 to 16 ascending integers of 8 bits.");
    bool is_range = levels.size() == 2;
    if (is_range ? levels.back() - levels.front() >= 1 << part.bits : part.bits != 4)
        throw std::invalid_argument("levels do not fit into " + std::to_string(part.bits) + " bits.");
    int groups = ceil_div(inputs, part.group_size);
    CodedRows rows{integers, outputs, part.group_size, {}, {}, part.bits, {}, levels.front()};
    rows.scales = checked_numbers(part.scales, "scales", outputs, groups);
    if (part.offsets) rows.offsets = checked_numbers(*part.offsets, "offsets", outputs, groups);
    if (!is_range) rows.levels.assign(levels.begin(), levels.end());
    return rows;
}

// parts: of CodedPart. Each is packed before the next one is asked for, so that only one need be in memory.
inline std::unique_ptr<CodedMatrix> packed_parts(ThreadPool& pool, const nb::iterable& parts) {
    std::unique_ptr<CodedMatrix> packed;
    int outputs = 0;  // of the part before
    for (nb::handle each : parts) {
        const CodedPart* part;
        if (!nb::try_cast(each, part) || !part) throw nb::type_error("parts must be of CodedPart.");
        CodedRows rows = checked_rows(*part);
        int in_features = static_cast<int>(part->integers.shape(1));
        if (!packed) packed = std::make_unique<CodedMatrix>(in_features);
        if (in_features != packed->in_features())
            throw std::invalid_argument("parts must have as many inputs as each other.");
        if (outputs % kLanes)
            throw std::invalid_argument("all parts but the last must have a multiple of 16 outputs; got " +
                                        std::to_string(outputs) + ".");
        outputs = rows.outputs;
        nb::gil_scoped_release no_gil;
        packed->add(pool, rows);
    }
    if (!packed) throw std::invalid_argument("parts must not be empty.");
    return packed;
}

}  // namespace specserve
