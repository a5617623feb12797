// Sums of linear maps whose weights have few bits.
//
// Inputs of 8 bits: the products of a group are summed exactly, in int32, so no order of additions can change a bit. An
// output adds its groups first to last, for each its sum times both scales, and then the offset times the sum of the
// inputs. How many rows are multiplied at a time changes neither: a row has the same bits for one row or two hundred.
//
// Inputs in float32: weights are unpacked to float32, as their format defines them, and multiplied like others.

template <typename S>
INLINE void quantize_block(const S* x, InputBlock* to) {
    constexpr int kHalf = kBlockInputs / 2;
    static_assert(kHalf == kLanes);
    Vec halves[2] = {load(x), load(x + kHalf)};
    InputRange range;
    for (Vec half : halves) range.add(half);
    auto [inverse, scale] = range.scale();
    to->scale = scale;
    for (int i = 0; i < 2; ++i) {
        Vec integers = inverse == 0.0f ? zeros() : nearest_int(mul(halves[i], splat(inverse)));
        store_bytes(to->values + i * kHalf, integers);
        to->sums[i] = static_cast<int32_t>(reduce_sum(integers));  // exact
    }
    to->scaled_sum = scale * static_cast<float>(to->sums[0] + to->sums[1]);
}

// Quantises a row. to: [blocks]; values behind the row are zeros.
template <typename S>
static void quantize_blocks(const S* x, int size, InputBlock* to) {
    int whole = size / kBlockInputs, left = size % kBlockInputs;
    for (int b = 0; b < whole; ++b) quantize_block(x + b * kBlockInputs, to + b);
    if (!left) return;
    S padded[kBlockInputs] = {};
    __builtin_memcpy(padded, x + whole * kBlockInputs, sizeof(S) * static_cast<unsigned>(left));
    quantize_block(padded, to + whole);
}

// A block of some rows, or all blocks from one on.
struct BlockRows {
    const InputBlock* data;
    ptrdiff_t stride;

    const InputBlock& at(int row) const { return data[row * stride]; }
    BlockRows from(int row) const { return {data + row * stride, stride}; }
    BlockRows from_block(int block) const { return {data + block, stride}; }
};

// Numbers are widened for some blocks at a time, into the first-level cache.
constexpr int kNumberBlocks = 16;

template <int P, int G>
struct WideNumbers {
    alignas(64) float scales[P][kNumberBlocks * G][kLanes];
    alignas(64) float offsets[P][kNumberBlocks * G][kLanes];
};

// Unpacked weights of one block.
template <int P, int G>
struct UnpackedBlock {
    CodeVec codes[P][kQuads];
    Vec scales[P][G], offsets[P][G];
};

// What the sum of a row's group starts from: the least integer times the sum of the inputs.
template <int bits, int G>
INLINE int start_of_group(const InputBlock& in, int g, int lowest) {
    return (lowest + CodeSums<bits>::kCentre) * (G == 1 ? in.sums[0] + in.sums[1] : in.sums[g]);
}

// The sum of a row's group of panel p, scaled and added to `to`.
template <bool has_offsets, int P, int G>
INLINE void add_group(const UnpackedBlock<P, G>& w, int p, int g, const InputBlock& in, IntVec group, float* to) {
    Vec sum = fma(to_float(group), mul(w.scales[p][g], splat(in.scale)), load(to));
    if constexpr (has_offsets) {
        float inputs = G == 1 ? in.scaled_sum : in.scale * static_cast<float>(in.sums[g]);
        sum = fma(w.offsets[p][g], splat(inputs), sum);
    }
    store(to, sum);
}

// The products of R rows with a block of codes below 2^bits, added to out[R][16 * P].
template <int bits, bool has_offsets, int P, int G, int R>
INLINE void add_block(const UnpackedBlock<P, G>& w, BlockRows x, int lowest, float* out, ptrdiff_t stride) {
    constexpr int kGroupQuads = kQuads / G;
    for (int g = 0; g < G; ++g) {
        CodeSums<bits> sums[R][P];
        UNROLLED for (int r = 0; r < R; ++r) {
            int start = start_of_group<bits, G>(x.at(r), g, lowest);
            UNROLLED for (int p = 0; p < P; ++p) sums[r][p].start(start);
        }
#pragma GCC unroll 8
        for (int q = 0; q < kGroupQuads; ++q) {
            UNROLLED for (int p = 0; p < P; ++p) {
                UNROLLED for (int r = 0; r < R; ++r) {
                    sums[r][p].add(q, w.codes[p][g * kGroupQuads + q], x.at(r).values + 4 * (g * kGroupQuads + q));
                }
            }
        }
        UNROLLED for (int r = 0; r < R; ++r) {
            UNROLLED for (int p = 0; p < P; ++p) {
                add_group<has_offsets>(w, p, g, x.at(r), sums[r][p].total(), out + r * stride + p * kLanes);
            }
        }
    }
}

#ifdef SPECSERVE_ROW_PAIRS
#include "kernels/coded_pairs-inl.hpp"
#else
// As `add_block`, of any number of rows.
template <int bits, bool has_offsets, int P, int G>
INLINE void add_rows(UnpackedBlock<P, G>& w, BlockRows x, int rows, int lowest, float* out, ptrdiff_t stride) {
    int r = 0;
    for (; r + kCodedRows <= rows; r += kCodedRows)
        add_block<bits, has_offsets, P, G, kCodedRows>(w, x.from(r), lowest, out + r * stride, stride);
    for (; kCodedRows > 1 && r < rows; ++r)
        add_block<bits, has_offsets, P, G, 1>(w, x.from(r), lowest, out + r * stride, stride);
}
#endif

// Prefetches data[bytes], a part with each of `blocks` blocks.
class Prefetcher {
   public:
    Prefetcher() = default;
    Prefetcher(const uint8_t* data, ptrdiff_t bytes, int blocks)
        : at_(data), end_(data ? data + bytes : data),
          part_(ceil_div(static_cast<int>(bytes / kLine), blocks) * kLine) {}

    void next() {
        const uint8_t* part_end = end_ - at_ < part_ ? end_ : at_ + part_;
        for (; at_ < part_end; at_ += kLine) __builtin_prefetch(at_, 0, 2);
    }

   private:
    static constexpr int kLine = 64;
    const uint8_t *at_ = nullptr, *end_ = nullptr;
    ptrdiff_t part_ = 0;
};

// Consecutive panels of one form, and what is prefetched meanwhile.
template <int P>
struct CodedPanels {
    const CodedPanel* panels;
    Prefetcher ahead[P];
};

// out[rows][16 * P] += x * w, of panels of one form.
template <int bits, bool has_table, bool has_offsets, int P, int G>
static void multiply_panels(CodedPanels<P> w, BlockRows x, int rows, int blocks, float* out, ptrdiff_t stride) {
    constexpr int kCodeBits = has_table ? 8 : bits;
    constexpr ptrdiff_t kBlockBytes = bytes_of_block(bits);
    const CodedForm& form = *w.panels[0].form;
    CodeVec table = load_table(form.table);
    WideNumbers<P, G> numbers;
    UnpackedBlock<P, G> unpacked;
    for (int begin = 0; begin < blocks; begin += kNumberBlocks) {
        int count = blocks - begin < kNumberBlocks ? blocks - begin : kNumberBlocks;
        for (int p = 0; p < P; ++p) {
            const CodedPanel& panel = w.panels[p];
            widen_numbers(form.scales, panel.scales, begin * G, count * G, numbers.scales[p][0]);
            if constexpr (has_offsets)
                widen_numbers(form.offsets, panel.offsets, begin * G, count * G, numbers.offsets[p][0]);
        }
        for (int b = begin; b < begin + count; ++b) {
            for (int p = 0; p < P; ++p) w.ahead[p].next();
            for (int p = 0; p < P; ++p) {
                unpack<bits, has_table>(w.panels[p].codes + b * kBlockBytes, table, unpacked.codes[p]);
                for (int g = 0; g < G; ++g) {
                    unpacked.scales[p][g] = load(numbers.scales[p][(b - begin) * G + g]);
                    if constexpr (has_offsets) unpacked.offsets[p][g] = load(numbers.offsets[p][(b - begin) * G + g]);
                }
            }
            add_rows<kCodeBits, has_offsets>(unpacked, x.from_block(b), rows, form.lowest, out, stride);
        }
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
    bool has_offsets = form.offsets.unit != Unit::kNone;
    alignas(64) float scales[2][kLanes], offsets[2][kLanes];
    widen_numbers(form.scales, panel.scales, block * groups, groups, scales[0]);
    if (has_offsets) widen_numbers(form.offsets, panel.offsets, block * groups, groups, offsets[0]);
    for (int q = 0; q < kQuads; ++q) {
        Vec scale = load(scales[q * groups / kQuads]);
        Vec four[4] = {to_floats<0>(codes[q]), to_floats<1>(codes[q]), to_floats<2>(codes[q]), to_floats<3>(codes[q])};
        for (Vec& code : four) {
            Vec weight = mul(add(code, lowest), scale);
            store(out, has_offsets ? add(weight, load(offsets[q * groups / kQuads])) : weight);
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
    // next: the weights that are read after these, or null.
    CodedBlock(const Linear<S>& w, const CodedInputs& x, int first, int panels, const void* next)
        : x_(x), first_(w.coded.panels + first), panels_(panels), in_features_(w.in_features),
          wide_inputs_(w.coded.wide_inputs), next_(static_cast<const uint8_t*>(next)) {}

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
                    dispatch_form<2>({first_ + p, {ahead(row, p + 2), ahead(row, p + 3)}}, x, rows, blocks,
                                     out + p * kLanes, stride);
                    p += 2;
                    continue;
                }
            }
            dispatch_form<1>({first_ + p, {ahead(row, p + 1)}}, x, rows, blocks, out + p * kLanes, stride);
            ++p;
        }
    }

   private:
    // What is prefetched of a later panel, while the first rows are multiplied: then it is in the cache. Those behind
    // the block may have another form: they are taken to be as large as the last panel of the block.
    Prefetcher ahead(int row, int panel) const {
        if (row > 0) return {};
        bool is_own = panel < panels_;
        const CodedPanel& known = first_[is_own ? panel : panels_ - 1];
        ptrdiff_t bytes = known.form->panel_bytes;
        const uint8_t* later = next_ ? next_ + (panel - panels_) * bytes : nullptr;
        return {is_own ? known.codes : later, bytes, ceil_div(in_features_, kBlockInputs)};
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
    int panels_, in_features_;
    bool wide_inputs_;
    const uint8_t* next_;
};
