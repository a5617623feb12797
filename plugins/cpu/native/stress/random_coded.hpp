// Random weights of few bits, of every form, and what they stand for.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "runtime/coded_weights.hpp"
#include "runtime/packed_weights.hpp"
#include "stress/stress.hpp"

namespace specserve {

// Scales or offsets of one part.
struct RandomNumbers {
    std::vector<float> units;
    std::vector<uint8_t> steps;
    bool is_signed = false;
    int groups = 0, groups_of_unit = 1;

    NumberRows rows() const {
        return {units.data(), steps.empty() ? nullptr : steps.data(), is_signed, groups_of_unit};
    }
    float at(int output, int group) const {
        float unit = units[static_cast<size_t>(output * (groups / groups_of_unit) + group / groups_of_unit)];
        if (steps.empty()) return unit;
        uint8_t step = steps[static_cast<size_t>(output * groups + group)];
        return unit * (is_signed ? static_cast<float>(static_cast<int8_t>(step)) : static_cast<float>(step));
    }
};

struct RandomPart {
    CodedRows rows;
    std::vector<int8_t> integers;
    RandomNumbers scales, offsets;
};

// A number that float16, bfloat16 or only float32 has exactly.
inline float random_unit(Random& random, int kind) {
    float x = std::normal_distribution<float>()(random);
    if (kind == 0) return std::ldexp(std::rint(std::ldexp(x, 8)), between(random, 0, 1) ? -8 : -24);  // or a subnormal
    return kind == 1 ? static_cast<float>(to_double(to_number<Bf16>(x * 1e-9f))) : x;
}

inline RandomNumbers random_numbers_of_groups(Random& random, int outputs, int groups) {
    RandomNumbers numbers;
    numbers.groups = groups;
    if (between(random, 0, 1)) {
        numbers.steps.resize(static_cast<size_t>(outputs * groups));
        for (uint8_t& step : numbers.steps) step = static_cast<uint8_t>(between(random, 0, 255));
        numbers.is_signed = between(random, 0, 1);
        do numbers.groups_of_unit = between(random, 1, groups);
        while (groups % numbers.groups_of_unit);
    }
    numbers.units.resize(static_cast<size_t>(outputs * (groups / numbers.groups_of_unit)));
    int kind = between(random, 0, 2);
    for (float& unit : numbers.units) unit = random_unit(random, kind);
    return numbers;
}

inline RandomPart random_part(Random& random, int outputs, int in_features) {
    RandomPart part;
    constexpr int kBits[] = {4, 5, 6, 8};
    int bits = kBits[between(random, 0, 3)];
    std::vector<int8_t> levels;  // of a table
    int lowest = bits == 8 ? -128 : between(random, -128, 128 - (1 << bits)), count = 1 << bits;
    if (bits == 4 && between(random, 0, 1)) {
        for (int i = 0, n = between(random, 3, 16); i < n; ++i)
            levels.push_back(static_cast<int8_t>(between(random, -128, 127)));
        std::sort(levels.begin(), levels.end());
        lowest = levels.front();
    }
    part.integers.resize(static_cast<size_t>(outputs * in_features));
    for (int8_t& integer : part.integers)
        integer = levels.empty() ? static_cast<int8_t>(lowest + between(random, 0, count - 1))
                                 : levels[static_cast<size_t>(between(random, 0, static_cast<int>(levels.size()) - 1))];
    int blocks = ceil_div(in_features, kBlockInputs);
    int group_size = between(random, 0, 2) ? between(random, 1, blocks) * kBlockInputs : kBlockInputs / 2;
    int groups = ceil_div(in_features, group_size);
    part.scales = random_numbers_of_groups(random, outputs, groups);
    if (between(random, 0, 1)) part.offsets = random_numbers_of_groups(random, outputs, groups);
    part.rows = {nullptr, outputs, group_size, {}, {}, bits, levels, lowest};
    return part;
}

// Parts below each other.
class RandomCoded {
   public:
    RandomCoded(Random& random, int out_features, int in_features) : in_features_(in_features) {
        while (out_features > 0) {
            bool is_last = out_features <= kLanes || between(random, 0, 1);
            int outputs = is_last ? out_features : kLanes * between(random, 1, (out_features - 1) / kLanes);
            parts_.push_back(random_part(random, outputs, in_features));
            out_features -= outputs;
        }
    }

    std::unique_ptr<CodedMatrix> packed(ThreadPool& pool) const {
        auto all = std::make_unique<CodedMatrix>(in_features_);
        for (const RandomPart& part : parts_) {
            CodedRows rows = part.rows;
            rows.integers = part.integers.data();
            rows.scales = part.scales.rows();
            if (part.offsets.groups) rows.offsets = part.offsets.rows();
            all->add(pool, rows);
        }
        return all;
    }

    // [outputs][in_features]: rounded to float32 where inputs are not quantised.
    std::vector<double> weights(InputKind inputs) const {
        return each([inputs](float integer, float scale, float offset) {
            if (inputs == InputKind::kModelDtype) return double{rounded_weight(integer, scale, offset)};
            return double{integer} * double{scale} + double{offset};
        });
    }
    std::vector<double> sizes() const {
        return each([](float integer, float scale, float offset) {
            return std::fabs(double{integer} * double{scale}) + std::fabs(double{offset});
        });
    }

    // That the packed weights are these, to the last bit.
    void check_rows(const CodedMatrix& packed) const {
        std::vector<double> expected = weights(InputKind::kModelDtype);
        std::vector<float> row(static_cast<size_t>(in_features_));
        for (int output = 0; output < packed.outputs(); ++output) {
            packed.widen(output, row.data());
            for (int i = 0; i < in_features_; ++i)
                require(double{row[static_cast<size_t>(i)]} == expected[static_cast<size_t>(output * in_features_ + i)],
                        "a weight of few bits is read as another one");
        }
    }

   private:
    // The product is rounded before the sum.
    static float rounded_weight(float integer, float scale, float offset) {
        volatile float product = integer * scale;
        return product + offset;
    }

    template <typename Number>
    std::vector<double> each(Number number) const {
        std::vector<double> numbers;
        for (const RandomPart& part : parts_)
            for (int output = 0; output < part.rows.outputs; ++output)
                for (int i = 0; i < in_features_; ++i) {
                    int group = i / part.rows.group_size;
                    float integer = part.integers[static_cast<size_t>(output * in_features_ + i)];
                    float offset = part.offsets.groups ? part.offsets.at(output, group) : 0.0f;
                    numbers.push_back(number(integer, part.scales.at(output, group), offset));
                }
        return numbers;
    }

    int in_features_;
    std::vector<RandomPart> parts_;
};

}  // namespace specserve
