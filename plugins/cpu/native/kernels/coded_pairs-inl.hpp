// Rows times a block of codes by products of matrices of bytes on NEON (SMMLA): two rows times two outputs, two quads
// at a time. Included by linear_coded-inl.hpp if SPECSERVE_ROW_PAIRS is defined.
//
// Sums of integers are exact: a row has the bits that dot instructions give it.

// Signed codes of two quads: outputs 4i and 4i + 1 go to the first, 4i + 2 and 4i + 3 to the second.
template <int bits>
INLINE void interleave_quads(CodeVec& first, CodeVec& second) {
    UNROLLED for (int i = 0; i < 4; ++i) {
        uint32x4_t a = vreinterpretq_u32_s8(CodeSums<bits>::signed_codes(first.v[i]));
        uint32x4_t b = vreinterpretq_u32_s8(CodeSums<bits>::signed_codes(second.v[i]));
        first.v[i] = vreinterpretq_u8_u32(vzip1q_u32(a, b));
        second.v[i] = vreinterpretq_u8_u32(vzip2q_u32(a, b));
    }
}

// As `add_block`, of two rows, with interleaved quads.
template <int bits, bool has_offsets, int P, int G>
INLINE void add_two_rows(const UnpackedBlock<P, G>& w, BlockRows x, int lowest, float* out, ptrdiff_t stride) {
    constexpr int kGroupQuads = kQuads / G;
    for (int g = 0; g < G; ++g) {
        int32x2_t first = vdup_n_s32(start_of_group<bits, G>(x.at(0), g, lowest));
        int32x2_t second = vdup_n_s32(start_of_group<bits, G>(x.at(1), g, lowest));
        PairSums<IntVec> sums[P];
        UNROLLED for (int p = 0; p < P; ++p) {
            UNROLLED for (int32x4_t& four : sums[p].v) four = vcombine_s32(first, second);
        }
#pragma GCC unroll 4
        for (int q = g * kGroupQuads; q < (g + 1) * kGroupQuads; q += 2) {
            uint32x4_t inputs = load_row_pair(x.at(0).values + 4 * q, x.at(1).values + 4 * q);
            UNROLLED for (int p = 0; p < P; ++p) {
                UNROLLED for (int i = 0; i < 8; ++i) {
                    uint32x4_t codes = vreinterpretq_u32_u8(w.codes[p][q + i % 2].v[i / 2]);
                    sums[p].v[i] = multiply_pairs(sums[p].v[i], inputs, codes);
                }
            }
        }
        UNROLLED for (int p = 0; p < P; ++p) {
            float* to = out + p * kLanes;
            add_group<has_offsets>(w, p, g, x.at(0), sums[p].first(), to);
            add_group<has_offsets>(w, p, g, x.at(1), sums[p].second(), to + stride);
        }
    }
}

// As `add_block`, of any number of rows. To interleave the codes takes longer than few rows gain.
template <int bits, bool has_offsets, int P, int G>
INLINE void add_rows(UnpackedBlock<P, G>& w, BlockRows x, int rows, int lowest, float* out, ptrdiff_t stride) {
    int paired = rows < kCodedRows ? 0 : rows / 2 * 2;
    for (int r = paired; r < rows; ++r)
        add_block<bits, has_offsets, P, G, 1>(w, x.from(r), lowest, out + r * stride, stride);
    if (paired == 0) return;
    UNROLLED for (int p = 0; p < P; ++p) {
        UNROLLED for (int q = 0; q < kQuads; q += 2) interleave_quads<bits>(w.codes[p][q], w.codes[p][q + 1]);
    }
    for (int r = 0; r < paired; r += 2) add_two_rows<bits, has_offsets>(w, x.from(r), lowest, out + r * stride, stride);
}
