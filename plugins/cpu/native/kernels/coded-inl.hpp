// Codes of weights unpacked into registers, and the numbers of their groups. The code_vec files define CodeVec: 64
// bytes, the codes of four consecutive inputs of each of sixteen outputs.

template <int left>
INLINE CodeVec shifted(CodeVec x) {
    if constexpr (left > 0) return shifted_left<left>(x);
    if constexpr (left < 0) return shifted_right<-left>(x);
    return x;
}

// Codes of quad `quad`. The bytes behind the nibbles hold the upper bits: of 5 bits, one byte has those of all quads,
// the first quad's lowest; of 6 bits, one byte has those of four quads.
template <int bits, bool has_table, int quad>
INLINE CodeVec unpack_quad(const uint8_t* codes, CodeVec table) {
    if constexpr (bits == 8) return load_codes(codes + quad * kQuadBytes);
    CodeVec pair = load_codes(codes + quad / 2 * kQuadBytes);
    CodeVec nibbles = masked(shifted<quad % 2 ? -4 : 0>(pair), 0x0f);
    if constexpr (has_table) return looked_up(table, nibbles);
    if constexpr (bits == 5) {
        CodeVec upper = load_codes(codes + kNibbleBytes);
        return either(nibbles, masked(shifted<4 - quad>(upper), 0x10));
    }
    if constexpr (bits == 6) {
        CodeVec upper = load_codes(codes + kNibbleBytes + quad / 4 * kQuadBytes);
        return either(nibbles, masked(shifted<4 - 2 * (quad % 4)>(upper), 0x30));
    }
    return nibbles;
}

template <int bits, bool has_table, int quad = 0>
INLINE void unpack(const uint8_t* codes, CodeVec table, CodeVec (&out)[kQuads]) {
    out[quad] = unpack_quad<bits, has_table, quad>(codes, table);
    if constexpr (quad + 1 < kQuads) unpack<bits, has_table, quad + 1>(codes, table, out);
}

template <Unit kind>
INLINE Vec load_unit(const uint8_t* units, int index) {
    ptrdiff_t at = ptrdiff_t{index} * kLanes;
    if constexpr (kind == Unit::kHalf) return load_half(units + at * 2);
    if constexpr (kind == Unit::kBf16) return load(reinterpret_cast<const Bf16*>(units) + at);
    return load(reinterpret_cast<const float*>(units) + at);
}

template <Step kind>
INLINE Vec times_step(Vec unit, const uint8_t* steps, int group) {
    steps += ptrdiff_t{group} * kLanes;
    if constexpr (kind == Step::kUnsigned) return mul(unit, load_uint8(steps));
    if constexpr (kind == Step::kSigned) return mul(unit, load_int8(reinterpret_cast<const int8_t*>(steps)));
    return unit;
}

template <Unit unit_kind, Step step_kind>
static void widen_numbers_of(const NumberForm& form, const Numbers& numbers, int first, int count, float* to) {
    int index = first / form.groups_of_unit, left = form.groups_of_unit - first % form.groups_of_unit;
    Vec unit = load_unit<unit_kind>(numbers.units, index);
    for (int g = first;;) {
        store(to, times_step<step_kind>(unit, numbers.steps, g));
        to += kLanes;
        if (++g == first + count) return;
        if (--left > 0) continue;
        unit = load_unit<unit_kind>(numbers.units, ++index);
        left = form.groups_of_unit;
    }
}

template <Unit kind>
INLINE void widen_numbers_in(const NumberForm& form, const Numbers& numbers, int first, int count, float* to) {
    if (form.step == Step::kUnsigned) return widen_numbers_of<kind, Step::kUnsigned>(form, numbers, first, count, to);
    if (form.step == Step::kSigned) return widen_numbers_of<kind, Step::kSigned>(form, numbers, first, count, to);
    widen_numbers_of<kind, Step::kNone>(form, numbers, first, count, to);
}

// The numbers of `count` groups from `first` on, of sixteen outputs: to[count][16].
INLINE void widen_numbers(const NumberForm& form, const Numbers& numbers, int first, int count, float* to) {
    if (form.unit == Unit::kHalf) return widen_numbers_in<Unit::kHalf>(form, numbers, first, count, to);
    if (form.unit == Unit::kBf16) return widen_numbers_in<Unit::kBf16>(form, numbers, first, count, to);
    widen_numbers_in<Unit::kFloat>(form, numbers, first, count, to);
}
