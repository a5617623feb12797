// Attention over a cache where each slot is contiguous: a segment's keys and values are packed into panels first.

template <typename S>
INLINE void copy_finite(const S* from, S* to, int size, float limit) {
    for (int i = 0; i < size; i += kLanes) {
        int n = size - i < kLanes ? size - i : kLanes;
        store(to + i, clamp_finite(load(from + i, n), splat(limit)), n);
    }
}

template <typename S>
static void store_kv_by_slot(const S* key, const S* value, KVCacheLayer<S> cache, int head, int64_t slot,
                             float key_limit) {
    ptrdiff_t offset = slot * cache.slot_size() + ptrdiff_t{head} * cache.head_dim;
    copy_finite(key, cache.keys + offset, cache.head_dim, key_limit);
    copy_finite(value, cache.values + offset, cache.head_dim, __builtin_inff());
}

template <typename S>
static void load_kv_by_slot(KVCacheLayer<S> cache, int head, int64_t slot, S* key, S* value) {
    ptrdiff_t offset = slot * cache.slot_size() + ptrdiff_t{head} * cache.head_dim;
    __builtin_memcpy(key, cache.keys + offset, static_cast<size_t>(cache.head_dim) * sizeof(S));
    __builtin_memcpy(value, cache.values + offset, static_cast<size_t>(cache.head_dim) * sizeof(S));
}

// Prefetches the next `count` keys and values of the thread's next segment into the L2 cache. Called with a few at a
// time throughout the work: the processor drops prefetches beyond its line fill buffers.
template <typename S>
INLINE void prefetch_kv(const AttentionArgs<S>& args, int& num_fetched, int count) {
    int end = num_fetched + count < args.next.count ? num_fetched + count : args.next.count;
    for (; num_fetched < end; ++num_fetched) {
        ptrdiff_t offset = args.next.slots[num_fetched] * args.slot_stride;
        for (int i = 0; i < args.head_dim; i += 64 / static_cast<int>(sizeof(S))) {
            __builtin_prefetch(args.next.keys + offset + i, 0, 2);
            __builtin_prefetch(args.next.values + offset + i, 0, 2);
        }
    }
}

// K as the weights of a linear map from head_dim to scores: [panel of 16 keys][K group of head_dim][16][kVnni].
template <typename S>
INLINE void pack_keys(const AttentionArgs<S>& args, int k_groups, S* packed, int& num_fetched) {
    constexpr int kWord = 4 / static_cast<int>(sizeof(S));  // elements in 32 bits
    for (int k = 0; k < args.num_keys; k += kLanes) {
        const void* rows[kLanes];
        for (int i = 0; i < kLanes; ++i) {
            int key = k + i < args.num_keys ? k + i : args.num_keys - 1;
            rows[i] = args.keys + args.slots[key] * args.slot_stride;
        }
        prefetch_kv(args, num_fetched, 6);
        S* to = packed + ptrdiff_t{k} * k_groups * kVnni<S>;
        int g = 0;
        for (; g + 16 <= k_groups; g += 16) transpose(rows, g * 4, to + ptrdiff_t{g} * kLanes * kVnni<S>);
        for (; g < k_groups; ++g)
            for (int i = 0; i < kLanes; ++i)
                __builtin_memcpy(to + (ptrdiff_t{g} * kLanes + i) * kVnni<S>,
                                 static_cast<const S*>(rows[i]) + g * kWord, 4);
    }
}

// V as the weights of a linear map from probs to head_dim: [panel of 16 elements][K group of keys][16][kVnni].
INLINE void pack_values(const AttentionArgs<Bf16>& args, int panels, Bf16* packed, int& num_fetched) {
    for (int k = 0; k < args.num_keys; k += 2) {
        prefetch_kv(args, num_fetched, 1);
        const Bf16* even = args.values + args.slots[k] * args.slot_stride;
        const Bf16* odd = args.values + args.slots[k + 1 < args.num_keys ? k + 1 : k] * args.slot_stride;
        for (int p = 0; p < panels; ++p) {
            Bf16* to = packed + (ptrdiff_t{p} * (kSegmentKeys / 2) + k / 2) * kLanes * 2;
            int n = args.head_dim - p * kLanes;
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
INLINE void pack_values(const AttentionArgs<float>& args, int panels, float* packed, int& num_fetched) {
    for (int k = 0; k < args.num_keys; ++k) {
        prefetch_kv(args, num_fetched, 1);
        const float* row = args.values + args.slots[k] * args.slot_stride;
        for (int p = 0; p < panels; ++p) {
            int n = args.head_dim - p * kLanes;
            store(packed + (ptrdiff_t{p} * kSegmentKeys + k) * kLanes, load(row + p * kLanes, n < kLanes ? n : kLanes));
        }
    }
}

template <typename S>
static void attend_segment_by_slot(const AttentionArgs<S>& args, PartialAttention out, char* memory) {
    int k_groups = ceil_div(args.head_dim, kVnni<S>), value_panels = ceil_div(args.head_dim, kLanes), num_fetched = 0;
    AttentionScratch<S> scratch(args, memory);
    pack_keys(args, k_groups, scratch.packed, num_fetched);
    Panels<S> keys{scratch.packed, ptrdiff_t{k_groups} * kLanes * kVnni<S>};
    gemm<S>(args.queries, args.num_queries, keys, ceil_div(args.num_keys, kLanes), k_groups, scratch.scores,
            {args.head_dim, kSegmentKeys}, keys);
    softmax_rows(args, scratch, out, [&] { prefetch_kv(args, num_fetched, 8); });
    pack_values(args, value_panels, scratch.packed, num_fetched);
    Panels<S> values{scratch.packed, ptrdiff_t{kSegmentKeys} * kLanes};
    gemm<S>(scratch.probs, args.num_queries, values, value_panels, ceil_div(args.num_keys, kVnni<S>), out.acc,
            {kSegmentKeys, static_cast<ptrdiff_t>(padded_head_dim(args.head_dim))}, values);
}
