// Attention of a few queries over one segment of keys, and the merge of segments. Included after rowwise.hpp.
//
// A segment is always the same kSegment keys of a request's path, counted from its first, and segments merge first to
// last: a query's bits follow from its own keys alone. Scores are chains over the head's numbers, weighted values are
// chains over the segment's keys; keys that a query does not see weigh exactly 0.

constexpr float kNothing = -__builtin_inff(), kLog2E = 1.44269504088896341f;

// The next `count` keys and values of what comes after this segment, towards the second cache. Asked for a few at a time
// all along the work: the processor drops what exceeds the lines it can wait for.
template <typename S>
INLINE void fetch(const Attend<S>& a, int& fetched, int count) {
    int end = fetched + count < a.ahead.count ? fetched + count : a.ahead.count;
    for (; fetched < end; ++fetched) {
        ptrdiff_t at = a.ahead.slots[fetched] * a.slot_stride;
        for (int b = 0; b < a.head_dim; b += 64 / static_cast<int>(sizeof(S))) {
            __builtin_prefetch(a.ahead.keys + at + b, 0, 2);
            __builtin_prefetch(a.ahead.values + at + b, 0, 2);
        }
    }
}

// Keys as the panels of a linear map from a head's numbers to scores: [panel of 16 keys][group][16][step].
template <typename S>
INLINE void pack_keys(const Attend<S>& a, int groups, S* packed, int& fetched) {
    constexpr int kWord = 4 / static_cast<int>(sizeof(S));  // numbers in 32 bits
    for (int k = 0; k < a.num_keys; k += kLanes) {
        const void* rows[kLanes];
        for (int i = 0; i < kLanes; ++i) {
            int key = k + i < a.num_keys ? k + i : a.num_keys - 1;
            rows[i] = a.keys + a.slots[key] * a.slot_stride;
        }
        fetch(a, fetched, 6);
        S* to = packed + ptrdiff_t{k} * groups * kStep<S>;
        int g = 0;
        for (; g + 16 <= groups; g += 16) transpose(rows, g * 4, to + ptrdiff_t{g} * kLanes * kStep<S>);
        for (; g < groups; ++g)
            for (int i = 0; i < kLanes; ++i)
                __builtin_memcpy(to + (ptrdiff_t{g} * kLanes + i) * kStep<S>, static_cast<const S*>(rows[i]) + g * kWord, 4);
    }
}

// Values as the panels of a linear map from weights of keys to a head's numbers: [panel of 16][group of keys][16][step].
INLINE void pack_values(const Attend<Bf16>& a, int panels, Bf16* packed, int& fetched) {
    for (int k = 0; k < a.num_keys; k += 2) {
        fetch(a, fetched, 1);
        const Bf16* even = a.values + a.slots[k] * a.slot_stride;
        const Bf16* odd = a.values + a.slots[k + 1 < a.num_keys ? k + 1 : k] * a.slot_stride;
        for (int p = 0; p < panels; ++p) {
            Bf16* to = packed + (ptrdiff_t{p} * (kSegment / 2) + k / 2) * kLanes * 2;
            int n = a.head_dim - p * kLanes;
            if (n >= kLanes) {
                interleave(even + p * kLanes, odd + p * kLanes, to);
                continue;
            }
            for (int i = 0; i < kLanes; ++i) {
                to[2 * i] = i < n ? even[p * kLanes + i] : Bf16{0};
                to[2 * i + 1] = i < n ? odd[p * kLanes + i] : Bf16{0};
            }
        }
    }
}
INLINE void pack_values(const Attend<float>& a, int panels, float* packed, int& fetched) {
    for (int k = 0; k < a.num_keys; ++k) {
        fetch(a, fetched, 1);
        const float* row = a.values + a.slots[k] * a.slot_stride;
        for (int p = 0; p < panels; ++p) {
            int n = a.head_dim - p * kLanes;
            store(packed + (ptrdiff_t{p} * kSegment + k) * kLanes, load(row + p * kLanes, n < kLanes ? n : kLanes));
        }
    }
}

// One query's scores, in units of ln 2, into weights, in place of the first `padded` of `to`; keys outside [low, high) weigh 0.
template <typename S>
INLINE void weigh(const float* scores, float scale, int low, int high, int padded, S* to, float* most, float* total) {
    F best = splat(kNothing), times = splat(scale * kLog2E);
    F seen[kSegment / kLanes];
    for (int k = 0; k < padded; k += kLanes) {
        seen[k / kLanes] = mul(load(scores + k), times);
        // most queries see most segments whole
        if (k < low) seen[k / kLanes] = where_less(iota(), splat(static_cast<float>(low - k)), splat(kNothing), seen[k / kLanes]);
        if (k + kLanes > high) seen[k / kLanes] = keep(seen[k / kLanes], high > k ? high - k : 0, kNothing);
        best = max(seen[k / kLanes], best);
    }
    float peak = maximum(best);
    F sums = zeros();
    for (int k = 0; k < padded; k += kLanes) {
        F weight = rounded(exp2_of_negative(sub(seen[k / kLanes], splat(peak))), to);
        sums = add(sums, weight);
        store(to + k, weight);
    }
    *most = peak;
    *total = sum(sums);
}

INLINE size_t padded_dim(int head_dim) { return static_cast<size_t>(divided_up(head_dim, kLanes)) * kLanes; }

// scratch: packed keys or values, scores, weights (see `attend_scratch`)
template <typename S>
static void attend(const Attend<S>& a, Partial out, char* scratch) {
    int groups = divided_up(a.head_dim, kStep<S>), panels = divided_up(a.head_dim, kLanes);
    int padded = divided_up(a.num_keys, kLanes) * kLanes;
    S* packed = reinterpret_cast<S*>(scratch);
    S* masses = packed + kSegment * padded_dim(a.head_dim);
    float* scores = reinterpret_cast<float*>(masses + ptrdiff_t{a.count} * kSegment);

    int fetched = 0;
    pack_keys(a, groups, packed, fetched);
    gemm<S>(a.queries, a.count, packed, padded / kLanes, groups, scores,
            {a.head_dim, ptrdiff_t{groups} * kLanes * kStep<S>, kSegment});
    for (int q = 0; q < a.count; ++q) {
        fetch(a, fetched, 8);
        int high = a.lengths[q] - a.first, low = a.window ? high - a.window : 0;
        high = high < a.num_keys ? high : a.num_keys;
        low = low > 0 ? low : 0;
        if (low >= high) {  // sees none of these keys: `merge` passes it by
            out.most[q] = kNothing;
            out.total[q] = 0.0f;
            for (int k = 0; k < padded; k += kLanes) store(masses + ptrdiff_t{q} * kSegment + k, zeros());
            continue;
        }
        weigh(scores + ptrdiff_t{q} * kSegment, a.scale, low, high, padded, masses + ptrdiff_t{q} * kSegment, out.most + q,
              out.total + q);
    }
    pack_values(a, panels, packed, fetched);
    gemm<S>(masses, a.count, packed, panels, divided_up(a.num_keys, kStep<S>), out.values,
            {kSegment, ptrdiff_t{kSegment} * kLanes, static_cast<ptrdiff_t>(padded_dim(a.head_dim))});
}

// The later segment's part onto the earlier ones' (Milakov and Gimelshein, 2018).
static void merge(Partial into, Partial from, int count, int head_dim) {
    ptrdiff_t wide = static_cast<ptrdiff_t>(padded_dim(head_dim));
    for (int q = 0; q < count; ++q) {
        if (from.total[q] == 0.0f) continue;
        bool fresh = into.total[q] == 0.0f;
        float peak = fresh || from.most[q] > into.most[q] ? from.most[q] : into.most[q];
        F old = fresh ? zeros() : exp2_of_negative(splat(into.most[q] - peak)), later = exp2_of_negative(splat(from.most[q] - peak));
        for (ptrdiff_t i = q * wide; i < (q + 1) * wide; i += kLanes) {
            F kept = fresh ? zeros() : mul(load(into.values + i), old);
            store(into.values + i, fma(load(from.values + i), later, kept));
        }
        F total = fma(splat(from.total[q]), later, fresh ? zeros() : mul(splat(into.total[q]), old));
        into.total[q] = first_of(total);
        into.most[q] = peak;
    }
}

// Adding 0 turns -0 into +0: how many zeros a query's sums met depends on its neighbours.
template <typename S>
static void conclude(Partial state, int count, int head_dim, S* out) {
    ptrdiff_t wide = static_cast<ptrdiff_t>(padded_dim(head_dim));
    for (int q = 0; q < count; ++q) {
        F share = splat(1.0f / state.total[q]);
        for (int i = 0; i < head_dim; i += kLanes) {
            F mean = add(mul(load(state.values + q * wide + i), share), zeros());
            store(out + ptrdiff_t{q} * head_dim + i, mean, head_dim - i < kLanes ? head_dim - i : kLanes);
        }
    }
}
