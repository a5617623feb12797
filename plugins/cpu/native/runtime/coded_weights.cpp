#include "runtime/coded_weights.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/half.hpp"

namespace specserve {

namespace {

using Codes = std::array<uint8_t, kBlockInputs * kLanes>;  // of a block: [quad][16 outputs][4 inputs]

float bf16_to_float(uint16_t bits) {
    uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float x;
    std::memcpy(&x, &wide, 4);
    return x;
}

uint32_t bits_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}

// The half with this value; another one where there is none.
uint16_t half_of(float x) {
    uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000u, exponent = bits >> 23 & 255u, fraction = bits & 0x7fffffu;
    if (exponent == 255) return static_cast<uint16_t>(sign | 0x7c00u | fraction >> 13);
    if (exponent > 112 && exponent < 143) return static_cast<uint16_t>(sign | (exponent - 112) << 10 | fraction >> 13);
    if (exponent > 101 && exponent <= 112)
        return static_cast<uint16_t>(sign | (0x800000u | fraction) >> (126 - exponent));
    return static_cast<uint16_t>(sign);
}

uint16_t bf16_of(float x) { return static_cast<uint16_t>(bits_of(x) >> 16); }

// The smallest form that holds all of them exactly.
Unit unit_of(const float* units, size_t count) {
    auto are = [&](auto narrow, auto widen) {
        return std::all_of(units, units + count, [&](float x) { return bits_of(widen(narrow(x))) == bits_of(x); });
    };
    if (are(half_of, half_to_float)) return Unit::kHalf;
    if (are(bf16_of, bf16_to_float)) return Unit::kBf16;
    return Unit::kFloat;
}

// As `unpack` in kernels/coded-inl.hpp reads them.
void pack_block(const Codes& codes, int bits, uint8_t* to) {
    if (bits == 8) {
        std::memcpy(to, codes.data(), codes.size());
        return;
    }
    auto quad_at = [&](int quad) { return codes.data() + quad * kQuadBytes; };
    for (int quad = 0; quad < kQuads; quad += 2, to += kQuadBytes) {
        const uint8_t *even = quad_at(quad), *odd = quad_at(quad + 1);
        for (int i = 0; i < kQuadBytes; ++i) to[i] = static_cast<uint8_t>((even[i] & 15) | odd[i] << 4);
    }
    if (bits == 4) return;
    int upper_bits = bits - 4, quads_of_byte = kQuads / upper_bits;
    std::memset(to, 0, static_cast<size_t>(upper_bits * kQuadBytes));
    for (int quad = 0; quad < kQuads; ++quad) {
        const uint8_t* from = quad_at(quad);
        uint8_t* upper = to + quad / quads_of_byte * kQuadBytes;
        int shift = quad % quads_of_byte * upper_bits;
        for (int i = 0; i < kQuadBytes; ++i) upper[i] = static_cast<uint8_t>(upper[i] | from[i] >> 4 << shift);
    }
}

int unpack_code(const uint8_t* block, int bits, int input, int lane) {
    int quad = input / 4, i = lane * 4 + input % 4;
    if (bits == 8) return block[quad * kQuadBytes + i];
    int code = block[quad / 2 * kQuadBytes + i] >> (quad % 2 ? 4 : 0) & 15;
    if (bits == 5) code |= (block[kNibbleBytes + i] >> quad & 1) << 4;
    if (bits == 6) code |= (block[kNibbleBytes + quad / 4 * kQuadBytes + i] >> 2 * (quad % 4) & 3) << 4;
    return code;
}

// From an integer to its code, by the integer + 128.
std::array<uint8_t, 256> codes_by_level(const std::vector<int8_t>& levels) {
    std::array<uint8_t, 256> codes{};
    for (size_t i = 0; i < levels.size(); ++i) codes[static_cast<size_t>(levels[i] + 128)] = static_cast<uint8_t>(i);
    return codes;
}

// The numbers of a part's groups, as a panel keeps them.
class NumberPacker {
   public:
    // group_size: of the format; kernels have groups of 16 or 32. The last block of 16 may have inputs for one group
    // alone: what the other one has is zeros.
    NumberPacker(const NumberRows& rows, int outputs, int groups, int group_size, int kernel_groups)
        : rows_(rows), groups_(groups), units_(ceil_div(groups, rows.groups_of_unit)),
          per_group_(std::max(1, group_size / kBlockInputs)), kernel_groups_(kernel_groups) {
        if (!rows.units) return;
        form.unit = unit_of(rows.units, static_cast<size_t>(outputs) * static_cast<size_t>(units_));
        if (rows.steps) form.step = rows.signed_steps ? Step::kSigned : Step::kUnsigned;
        // the one unit of a row is never left
        form.groups_of_unit = units_ == 1 ? kernel_groups : rows.groups_of_unit * per_group_;
        kernel_units_ = ceil_div(kernel_groups, form.groups_of_unit);
    }

    size_t unit_bytes() const { return static_cast<size_t>(kernel_units_ * kLanes * form.unit_bytes()); }
    size_t step_bytes() const { return rows_.steps ? static_cast<size_t>(kernel_groups_ * kLanes) : 0; }

    void pack(int first_output, int outputs, uint8_t* units, uint8_t* steps) const {
        std::memset(units, 0, unit_bytes());
        for (int u = 0; u < units_; ++u)
            for (int lane = 0; rows_.units && lane < outputs; ++lane)
                put_unit(rows_.units[ptrdiff_t{first_output + lane} * units_ + u], units, u * kLanes + lane);
        std::memset(steps, 0, step_bytes());
        for (int g = 0; rows_.steps && g < kernel_groups_ && g / per_group_ < groups_; ++g)
            for (int lane = 0; lane < outputs; ++lane)
                steps[g * kLanes + lane] = rows_.steps[ptrdiff_t{first_output + lane} * groups_ + g / per_group_];
    }

    NumberForm form;

   private:
    void put_unit(float x, uint8_t* units, int index) const {
        if (form.unit == Unit::kFloat) {
            std::memcpy(units + 4 * index, &x, 4);
        } else {
            uint16_t narrow = form.unit == Unit::kHalf ? half_of(x) : bf16_of(x);
            std::memcpy(units + 2 * index, &narrow, 2);
        }
    }

    const NumberRows& rows_;
    int groups_, units_, per_group_, kernel_groups_, kernel_units_ = 0;
};

float number(const NumberForm& form, const Numbers& numbers, int group, int lane) {
    int at = group / form.groups_of_unit * kLanes + lane;
    float unit;
    if (form.unit == Unit::kFloat) {
        std::memcpy(&unit, numbers.units + 4 * at, 4);
    } else {
        uint16_t narrow;
        std::memcpy(&narrow, numbers.units + 2 * at, 2);
        unit = form.unit == Unit::kHalf ? half_to_float(narrow) : bf16_to_float(narrow);
    }
    uint8_t step = form.step == Step::kNone ? 1 : numbers.steps[group * kLanes + lane];
    return unit * (form.step == Step::kSigned ? static_cast<float>(static_cast<int8_t>(step)) : step);
}

}  // namespace

void CodedMatrix::add(ThreadPool& pool, const CodedRows& rows) {
    int groups = ceil_div(in_features_, rows.group_size), blocks = ceil_div(in_features_, kBlockInputs);
    int groups_of_block = rows.group_size < kBlockInputs ? 2 : 1, num_panels = ceil_div(rows.outputs, kLanes);
    NumberPacker scales(rows.scales, rows.outputs, groups, rows.group_size, blocks * groups_of_block);
    NumberPacker offsets(rows.offsets, rows.outputs, groups, rows.group_size, blocks * groups_of_block);
    auto form = std::make_unique<CodedForm>();
    *form = {rows.bits, rows.lowest, !rows.levels.empty(), {}, groups_of_block, scales.form, offsets.form};
    for (size_t i = 0; i < rows.levels.size(); ++i) form->table[i] = static_cast<uint8_t>(rows.levels[i] - rows.lowest);

    size_t code_bytes = static_cast<size_t>(blocks * form->block_bytes());
    std::array<size_t, 4> sizes = {scales.unit_bytes(), scales.step_bytes(), offsets.unit_bytes(),
                                   offsets.step_bytes()};
    size_t panel_bytes = code_bytes;
    for (size_t& size : sizes) panel_bytes += size = (size + 63) / 64 * 64;
    form->panel_bytes = static_cast<ptrdiff_t>(panel_bytes);
    HugePageBuffer buffer(static_cast<size_t>(num_panels) * panel_bytes);
    std::array<uint8_t, 256> codes_of_levels = codes_by_level(rows.levels);
    size_t first_panel = panels_.size();
    panels_.resize(first_panel + static_cast<size_t>(num_panels));

    auto pack_panel = [&](int p) {
        int first = p * kLanes, outputs = std::min(kLanes, rows.outputs - first);
        uint8_t* to = buffer.get<uint8_t>() + static_cast<size_t>(p) * panel_bytes;
        for (int b = 0; b < blocks; ++b) {
            Codes block{};
            int begin = b * kBlockInputs, count = std::min(kBlockInputs, in_features_ - begin);
            for (int lane = 0; lane < outputs; ++lane) {
                const int8_t* from = rows.integers + ptrdiff_t{first + lane} * in_features_ + begin;
                uint8_t own[kBlockInputs] = {};
                if (rows.levels.empty())
                    for (int i = 0; i < count; ++i) own[i] = static_cast<uint8_t>(from[i] - rows.lowest);
                else
                    for (int i = 0; i < count; ++i) own[i] = codes_of_levels[static_cast<size_t>(from[i] + 128)];
                for (int quad = 0; quad < kQuads; ++quad)
                    std::memcpy(block.data() + quad * kQuadBytes + lane * 4, own + quad * 4, 4);
            }
            pack_block(block, rows.bits, to + b * form->block_bytes());
        }
        uint8_t* at = to + code_bytes;
        std::array<uint8_t*, 4> places;
        for (size_t i = 0; i < places.size(); at += sizes[i++]) places[i] = at;
        scales.pack(first, outputs, places[0], places[1]);
        offsets.pack(first, outputs, places[2], places[3]);
        panels_[first_panel + static_cast<size_t>(p)] = {
            form.get(), to, {places[0], places[1]}, {places[2], places[3]}};
    };
    pool.run(1, [&](ThreadPool::Team& team) { team.parallel_for(num_panels, pack_panel); });
    outputs_ += rows.outputs;
    forms_.push_back(std::move(form));
    buffers_.push_back(std::move(buffer));
}

void CodedMatrix::widen(int output, float* weights) const {
    const CodedPanel& panel = panels_[static_cast<size_t>(output / kLanes)];
    const CodedForm& form = *panel.form;
    int lane = output % kLanes, group_inputs = kBlockInputs / form.groups_of_block, group = -1;
    float scale = 0.0f, offset = 0.0f;
    for (int i = 0; i < in_features_; ++i) {
        if (i / group_inputs != group) {
            group = i / group_inputs;
            scale = number(form.scales, panel.scales, group, lane);
            offset = form.offsets.unit == Unit::kNone ? 0.0f : number(form.offsets, panel.offsets, group, lane);
        }
        int code = unpack_code(panel.codes + i / kBlockInputs * form.block_bytes(), form.bits, i % kBlockInputs, lane);
        float weight = static_cast<float>((form.has_table ? form.table[code] : code) + form.lowest) * scale;
        weights[i] = form.offsets.unit == Unit::kNone ? weight : weight + offset;
    }
}

}  // namespace specserve
