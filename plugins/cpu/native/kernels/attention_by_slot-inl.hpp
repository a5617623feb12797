// Attention over a cache in which every slot has its numbers one after the other: they are packed into panels first.
// Included after attend.hpp.

template <typename S>
INLINE void copy_finite(const S* from, S* to, int size, float limit) {
    for (int i = 0; i < size; i += kLanes) {
        int n = size - i < kLanes ? size - i : kLanes;
        store(to + i, finite(load(from + i, n), splat(limit)), n);
    }
}

template <typename S>
static void keep_by_slot(const S* key, const S* value, CacheLayer<S> cache, int head, int64_t slot, float key_limit) {
    ptrdiff_t at = slot * cache.slot_size() + ptrdiff_t{head} * cache.dim;
    copy_finite(key, cache.keys + at, cache.dim, key_limit);
    copy_finite(value, cache.values + at, cache.dim, __builtin_inff());
}

template <typename S>
static void take_by_slot(CacheLayer<S> cache, int head, int64_t slot, S* key, S* value) {
    ptrdiff_t at = slot * cache.slot_size() + ptrdiff_t{head} * cache.dim;
    __builtin_memcpy(key, cache.keys + at, static_cast<size_t>(cache.dim) * sizeof(S));
    __builtin_memcpy(value, cache.values + at, static_cast<size_t>(cache.dim) * sizeof(S));
}

// The next `count` keys and values of what comes after this segment, towards the second cache. Asked for a few at a
// time all along the work: the processor drops what exceeds the lines it can wait for.
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
                __builtin_memcpy(to + (ptrdiff_t{g} * kLanes + i) * kStep<S>,
                                 static_cast<const S*>(rows[i]) + g * kWord, 4);
    }
}

// Values as the panels of a linear map from weights of keys to a head's numbers: [panel of 16][group of
// keys][16][step].
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

template <typename S>
static void attend_by_slot(const Attend<S>& a, Partial out, char* memory) {
    int groups = divided_up(a.head_dim, kStep<S>), panels = divided_up(a.head_dim, kLanes), fetched = 0;
    Scratch<S> scratch(a, memory);
    pack_keys(a, groups, scratch.packed, fetched);
    Panelled<S> keys{scratch.packed, ptrdiff_t{groups} * kLanes * kStep<S>};
    gemm<S>(a.queries, a.count, keys, divided_up(a.num_keys, kLanes), groups, scratch.scores, {a.head_dim, kSegment},
            keys);
    weigh_all(a, scratch, out, [&] { fetch(a, fetched, 8); });
    pack_values(a, panels, scratch.packed, fetched);
    Panelled<S> values{scratch.packed, ptrdiff_t{kSegment} * kLanes};
    gemm<S>(scratch.masses, a.count, values, panels, divided_up(a.num_keys, kStep<S>), out.values,
            {kSegment, static_cast<ptrdiff_t>(padded_dim(a.head_dim))}, values);
}
