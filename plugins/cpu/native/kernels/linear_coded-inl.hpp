// Sums of linear maps whose weights have few bits.
//
// Inputs of 8 bits: the products of a group are summed exactly, in int32, so no order of additions can change a bit. An
// output adds its groups first to last, for each its sum times both scales, and then the offset times the sum of the
// inputs. How many rows are multiplied at a time changes neither: a row has the same bits for one row or two hundred.
//
// Inputs in float32: weights are unpacked to float32, as their format defines them, and multiplied like others.

// Quantises a row. to: [blocks]; values behind the row are zeros.
template <typename S>
static void quantize_blocks(const S* x, int size, InputBlock* to) {
    for (int begin = 0; begin < size; begin += kBlockInputs, ++to) {
        int count = size - begin < kBlockInputs ? size - begin : kBlockInputs;
        QuantizedInput values[kBlockInputs];
        __builtin_memset(values, kInputOffset, sizeof values);
        to->scale = quantize_group(x + begin, count, values);
        to->sums[0] = to->sums[1] = 0;
        for (int i = 0; i < kBlockInputs; ++i) {
            int value = values[i].value - kInputOffset;
            to->values[i] = static_cast<int8_t>(value);
            to->sums[i / (kBlockInputs / 2)] += value;
        }
        to->scaled_sum = to->scale * static_cast<float>(to->sums[0] + to->sums[1]);
    }
}

// The blocks of some rows.
struct BlockRows {
    const InputBlock* data;
    ptrdiff_t stride;

    const InputBlock& at(int row, int block) const { return data[row * stride + block]; }
    BlockRows from(int row) const { return {data + row * stride, stride}; }
};

template <int P>
struct CodedPanels {
    const CodedPanel* panels;
    const uint8_t* ahead[P];          // as many codes are prefetched from there
    const uint8_t* numbers_ahead[P];  // and as many numbers; null where it is not known where they are
};

// Unpacked weights of one block.
template <int P, int G>
struct UnpackedBlock {
    CodeVec codes[P][kQuads];
    Vec scales[P][G], offsets[P][G];
};

// The products of R rows with a block, added to out[R][16 * P].
template <bool wide, bool has_offsets, int P, int G, int R>
INLINE void add_block(const UnpackedBlock<P, G>& w, BlockRows x, int block, int lowest, float* out, ptrdiff_t stride) {
    constexpr int kGroupQuads = kQuads / G;
    for (int g = 0; g < G; ++g) {
        IntVec sums[R][P];
        for (int r = 0; r < R; ++r) {
            const int32_t* inputs = x.at(r, block).sums;
            IntVec start = splat_int(lowest * (G == 1 ? inputs[0] + inputs[1] : inputs[g]));
            for (int p = 0; p < P; ++p) sums[r][p] = start;
        }
        for (int q = g * kGroupQuads; q < (g + 1) * kGroupQuads; ++q)
            for (int p = 0; p < P; ++p)
                for (int r = 0; r < R; ++r)
                    sums[r][p] = dot_codes<wide>(sums[r][p], w.codes[p][q], x.at(r, block).values + 4 * q);
        for (int r = 0; r < R; ++r) {
            const InputBlock& in = x.at(r, block);
            Vec scale = splat(in.scale);
            for (int p = 0; p < P; ++p) {
                float* to = out + r * stride + p * kLanes;
                Vec sum = fma(to_float(sums[r][p]), mul(w.scales[p][g], scale), load(to));
                if constexpr (has_offsets) {
                    float inputs = G == 1 ? in.scaled_sum : in.scale * static_cast<float>(in.sums[g]);
                    sum = fma(w.offsets[p][g], splat(inputs), sum);
                }
                store(to, sum);
            }
        }
    }
}

// The part of a panel's numbers that is prefetched with block `block` of `blocks`.
INLINE void prefetch_numbers(const uint8_t* numbers, ptrdiff_t bytes, int block, int blocks) {
    constexpr ptrdiff_t kLine = 64;
    if (!numbers) return;
    ptrdiff_t each = (bytes / kLine + blocks - 1) / blocks * kLine, begin = block * each;
    for (ptrdiff_t i = begin; i < begin + each && i < bytes; i += kLine) __builtin_prefetch(numbers + i, 0, 2);
}

// out[rows][16 * P] += x * w, of panels of one form.
template <int bits, bool has_table, bool has_offsets, int P, int G>
static void multiply_panels(CodedPanels<P> w, BlockRows x, int rows, int blocks, float* out, ptrdiff_t stride) {
    constexpr bool kWide = bits == 8 || has_table;
    const CodedForm& form = *w.panels[0].form;
    ptrdiff_t block_bytes = form.block_bytes();
    CodeVec table = load_table(form.table);
    UnpackedBlock<P, G> unpacked;
    for (int b = 0; b < blocks; ++b) {
        for (int p = 0; p < P; ++p) {
            const CodedPanel& panel = w.panels[p];
            if (const uint8_t* ahead = w.ahead[p])
                for (ptrdiff_t i = 0; i < block_bytes; i += 64) __builtin_prefetch(ahead + b * block_bytes + i, 0, 2);
            prefetch_numbers(w.numbers_ahead[p], form.number_bytes, b, blocks);
            unpack<bits, has_table>(panel.codes + b * block_bytes, table, unpacked.codes[p]);
            for (int g = 0; g < G; ++g) {
                unpacked.scales[p][g] = load_numbers(form.scales, panel.scales, b * G + g);
                if constexpr (has_offsets)
                    unpacked.offsets[p][g] = load_numbers(form.offsets, panel.offsets, b * G + g);
            }
        }
        int r = 0;
        for (; r + kCodedRows <= rows; r += kCodedRows)
            add_block<kWide, has_offsets, P, G, kCodedRows>(unpacked, x.from(r), b, form.lowest, out + r * stride,
                                                            stride);
        for (; kCodedRows > 1 && r < rows; ++r)
            add_block<kWide, has_offsets, P, G, 1>(unpacked, x.from(r), b, form.lowest, out + r * stride, stride);
    }
}

template <int bits, bool has_table, int P>
INLINE void dispatch_groups(CodedPanels<P> w, BlockRows x, int rows, int blocks, float* out, ptrdiff_t stride) {
    const CodedForm& form = *w.panels[0].form;
    bool has_offsets = form.offsets.unit != Unit::kNone;
    if (form.groups_of_block == 2)
        return has_offsets ? multiply_panels<bits, has_table, true, P, 2>(w, x, rows, blocks, out, stride)
                           : multiply_panels<bits, has_table, false, P, 2>(w, x, rows, blocks, out, stride);
    return has_offsets ? multiply_panels<bits, has_table, true, P, 1>(w, x, rows, blocks, out, stride)
                       : multiply_panels<bits, has_table, false, P, 1>(w, x, rows, blocks, out, stride);
}

template <int P>
static void dispatch_form(CodedPanels<P> w, BlockRows x, int rows, int blocks, float* out, ptrdiff_t stride) {
    const CodedForm& form = *w.panels[0].form;
    if (form.has_table) return dispatch_groups<4, true, P>(w, x, rows, blocks, out, stride);
    if (form.bits == 4) return dispatch_groups<4, false, P>(w, x, rows, blocks, out, stride);
    if (form.bits == 5) return dispatch_groups<5, false, P>(w, x, rows, blocks, out, stride);
    if (form.bits == 6) return dispatch_groups<6, false, P>(w, x, rows, blocks, out, stride);
    return dispatch_groups<8, false, P>(w, x, rows, blocks, out, stride);
}

// A panel's weights of a block as float32: [32 inputs][16 outputs].
template <int bits, bool has_table>
static void widen_block(const CodedPanel& panel, int block, float* out) {
    const CodedForm& form = *panel.form;
    CodeVec codes[kQuads];
    unpack<bits, has_table>(panel.codes + block * form.block_bytes(), load_table(form.table), codes);
    Vec lowest = splat(static_cast<float>(form.lowest));
    int groups = form.groups_of_block;
    for (int q = 0; q < kQuads; ++q) {
        int group = block * groups + q * groups / kQuads;
        Vec scale = load_numbers(form.scales, panel.scales, group);
        bool has_offset = form.offsets.unit != Unit::kNone;
        Vec offset = has_offset ? load_numbers(form.offsets, panel.offsets, group) : zeros();
        Vec four[4] = {to_floats<0>(codes[q]), to_floats<1>(codes[q]), to_floats<2>(codes[q]), to_floats<3>(codes[q])};
        for (Vec& code : four) {
            Vec weight = mul(add(code, lowest), scale);
            store(out, has_offset ? add(weight, offset) : weight);
            out += kLanes;
        }
    }
}

INLINE void widen_any_block(const CodedPanel& panel, int block, float* out) {
    const CodedForm& form = *panel.form;
    if (form.has_table) return widen_block<4, true>(panel, block, out);
    if (form.bits == 4) return widen_block<4, false>(panel, block, out);
    if (form.bits == 5) return widen_block<5, false>(panel, block, out);
    if (form.bits == 6) return widen_block<6, false>(panel, block, out);
    widen_block<8, false>(panel, block, out);
}

// Up to kBlockPanels consecutive panels of a linear map with coded weights.
template <typename S>
class CodedBlock {
   public:
    // next: the weights that are read after these.
    CodedBlock(const Linear<S>& w, const CodedInputs& x, int first, int panels, const void* next)
        : x_(x), first_(w.coded.panels + first), panels_(panels), left_(w.num_panels() - first),
          in_features_(w.in_features), wide_inputs_(w.coded.wide_inputs), next_(static_cast<const uint8_t*>(next)) {}

    // out[rows][16 * panels] = x * w, of `rows` rows from `row` on
    void multiply(int row, int rows, float* out, ptrdiff_t stride) const {
        if (wide_inputs_) return multiply_wide(row, rows, out, stride);
        for (int r = 0; r < rows; ++r)
            __builtin_memset(out + r * stride, 0, sizeof(float) * kLanes * unsigned(panels_));
        BlockRows x{x_.blocks + row * x_.stride, x_.stride};
        int blocks = ceil_div(in_features_, kBlockInputs);
        for (int p = 0; p < panels_;) {
            if constexpr (kCodedPanels == 2) {
                if (p + 1 < panels_ && first_[p].form == first_[p + 1].form) {
                    Ahead one = ahead(row, p + 2), two = ahead(row, p + 3);
                    dispatch_form<2>({first_ + p, {one.codes, two.codes}, {one.numbers, two.numbers}}, x, rows, blocks,
                                     out + p * kLanes, stride);
                    p += 2;
                    continue;
                }
            }
            Ahead one = ahead(row, p + 1);
            dispatch_form<1>({first_ + p, {one.codes}, {one.numbers}}, x, rows, blocks, out + p * kLanes, stride);
            ++p;
        }
    }

   private:
    struct Ahead {
        const uint8_t *codes = nullptr, *numbers = nullptr;
    };

    // What is prefetched of a later panel, while the first rows are multiplied: then it is in the cache.
    Ahead ahead(int row, int panel) const {
        if (row > 0) return {};
        if (panel < left_) return {first_[panel].codes, first_[panel].scales.units};
        return {panel == left_ ? next_ : nullptr, nullptr};
    }

    void multiply_wide(int row, int rows, float* out, ptrdiff_t stride) const {
        int blocks = ceil_div(in_features_, kBlockInputs);
        ptrdiff_t size = ptrdiff_t{blocks} * kBlockInputs * kLanes;
        float* scratch = static_cast<float*>(wide_scratch[0].get(static_cast<size_t>(kWidePanels * size) * 4));
        Panels<float> wide{scratch, size};
        for (int p = 0; p < panels_; p += kWidePanels) {
            int count = panels_ - p < kWidePanels ? panels_ - p : kWidePanels;
            for (int i = 0; i < count; ++i)
                for (int b = 0; b < blocks; ++b)
                    widen_any_block(first_[p + i], b, scratch + i * size + ptrdiff_t{b} * kBlockInputs * kLanes);
            gemm<float>(x_.wide + row * x_.stride, rows, wide, count, in_features_, out + p * kLanes,
                        RowStrides{x_.stride, stride}, wide);
        }
    }

    CodedInputs x_;
    const CodedPanel* first_;
    int panels_, left_, in_features_;  // left_: panels of the map from the first on
    bool wide_inputs_;
    const uint8_t* next_;
};
