// Attention over a cache where each slot is contiguous: a segment's keys and values are packed into panels first.

// Copies of a head's bytes: its key or its value in a slot.
static void read_slot_by_slot(KVCacheLayer cache, int head, int64_t slot, char* key, char* value) {
    ptrdiff_t offset = slot * cache.slot_bytes() + head * cache.head_bytes;
    __builtin_memcpy(key, cache.keys + offset, static_cast<size_t>(cache.head_bytes));
    __builtin_memcpy(value, cache.values + offset, static_cast<size_t>(cache.head_bytes));
}
static void write_slot_by_slot(const char* key, const char* value, KVCacheLayer cache, int head, int64_t slot) {
    ptrdiff_t offset = slot * cache.slot_bytes() + head * cache.head_bytes;
    __builtin_memcpy(cache.keys + offset, key, static_cast<size_t>(cache.head_bytes));
    __builtin_memcpy(cache.values + offset, value, static_cast<size_t>(cache.head_bytes));
}

// A head's numbers, then their scale.
template <typename S, typename W>
static void store_kv_by_slot(const S* key, const S* value, KVCacheLayer cache, int head, int64_t slot,
                             float key_limit) {
    ptrdiff_t offset = slot * cache.slot_bytes() + head * cache.head_bytes;
    auto keep = [&](const S* from, float limit, char* to) {
        KeptNumbers<S, W> kept(from, cache.head_dim, limit);
        W* elements = reinterpret_cast<W*>(to);
        for (int i = 0; i < cache.head_dim; i += kLanes)
            kept.store_at(elements + i, i, cache.head_dim - i < kLanes ? cache.head_dim - i : kLanes);
        float scale = kept.scale();
        __builtin_memcpy(elements + cache.head_dim, &scale, kScaleBytes<W>);
    };
    keep(key, key_limit, cache.keys + offset);
    keep(value, __builtin_inff(), cache.values + offset);
}

// Prefetches the next `count` keys and values of the thread's next segment into the L2 cache. Called with a few at a
// time throughout the work: the processor drops prefetches beyond its line fill buffers.
template <typename S, typename W>
INLINE void prefetch_kv(const AttentionArgs<S>& args, int& num_fetched, int count) {
    int end = num_fetched + count < args.next.count ? num_fetched + count : args.next.count;
    int bytes = args.head_dim * static_cast<int>(sizeof(W)) + kScaleBytes<W>;
    for (; num_fetched < end; ++num_fetched) {
        ptrdiff_t offset = args.next.slots[num_fetched] * args.slot_bytes;
        for (int i = 0; i < bytes; i += 64) {
            __builtin_prefetch(args.next.keys + offset + i, 0, 2);
            __builtin_prefetch(args.next.values + offset + i, 0, 2);
        }
    }
}

// The keys or the values of a segment as rows of type S.
template <typename S, typename W>
class SlotRows {
   public:
    // wide: memory for the widened rows of a segment. scales: gets theirs, and 0 up to a multiple of sixteen keys.
    SlotRows(const char* base, const AttentionArgs<S>& args, S* wide, float* scales) : base_(base), args_(args) {
        if constexpr (kScaleBytes<W> > 0) {
            wide_ = wide;
            for (int k = 0; k < args.num_keys; ++k) {
                const W* integers = reinterpret_cast<const W*>(base + args.slots[k] * args.slot_bytes);
                widen_numbers(integers, args.head_dim, wide + ptrdiff_t{k} * args.head_dim);
                __builtin_memcpy(scales + k, integers + args.head_dim, kScaleBytes<W>);
            }
            for (int k = args.num_keys; k % kLanes; ++k) scales[k] = 0.0f;
        }
    }

    const S* row(int key) const {
        if constexpr (kScaleBytes<W> > 0) return wide_ + ptrdiff_t{key} * args_.head_dim;
        return reinterpret_cast<const S*>(base_ + args_.slots[key] * args_.slot_bytes);
    }

   private:
    const char* base_;
    const AttentionArgs<S>& args_;
    const S* wide_ = nullptr;
};

// K as the weights of a linear map from head_dim to scores: [panel of 16 keys][K group of head_dim][16][kVnni].
template <typename S, typename W>
INLINE void pack_keys(const AttentionArgs<S>& args, SlotRows<S, W> keys, int k_groups, S* packed, int& num_fetched) {
    constexpr int kWord = 4 / static_cast<int>(sizeof(S));  // elements in 32 bits
    for (int k = 0; k < args.num_keys; k += kLanes) {
        const void* rows[kLanes];
        for (int i = 0; i < kLanes; ++i) {
            int key = k + i < args.num_keys ? k + i : args.num_keys - 1;
            rows[i] = keys.row(key);
        }
        prefetch_kv<S, W>(args, num_fetched, 6);
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
template <typename W>
INLINE void pack_values(const AttentionArgs<Bf16>& args, SlotRows<Bf16, W> values, int panels, Bf16* packed,
                        int& num_fetched) {
    for (int k = 0; k < args.num_keys; k += 2) {
        prefetch_kv<Bf16, W>(args, num_fetched, 1);
        const Bf16* even = values.row(k);
        const Bf16* odd = values.row(k + 1 < args.num_keys ? k + 1 : k);
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
template <typename W>
INLINE void pack_values(const AttentionArgs<float>& args, SlotRows<float, W> values, int panels, float* packed,
                        int& num_fetched) {
    for (int k = 0; k < args.num_keys; ++k) {
        prefetch_kv<float, W>(args, num_fetched, 1);
        const float* row = values.row(k);
        for (int p = 0; p < panels; ++p) {
            int n = args.head_dim - p * kLanes;
            store(packed + (ptrdiff_t{p} * kSegmentKeys + k) * kLanes, load(row + p * kLanes, n < kLanes ? n : kLanes));
        }
    }
}

template <typename S, typename W>
static void attend_segment_by_slot(const AttentionArgs<S>& args, PartialAttention out, char* memory) {
    int k_groups = ceil_div(args.head_dim, kVnni<S>), value_panels = ceil_div(args.head_dim, kLanes), num_fetched = 0;
    AttentionScratch<S> scratch(args, 0, memory);
    SlotRows<S, W> key_rows(args.keys, args, scratch.gathered, scratch.key_scales);
    pack_keys<S, W>(args, key_rows, k_groups, scratch.packed, num_fetched);
    Panels<S> keys{scratch.packed, ptrdiff_t{k_groups} * kLanes * kVnni<S>};
    gemm<S>(args.queries, args.num_queries, keys, ceil_div(args.num_keys, kLanes), k_groups, scratch.scores,
            {args.head_dim, kSegmentKeys}, keys);
    SlotRows<S, W> value_rows(args.values, args, scratch.gathered, scratch.value_scales);
    softmax_rows<W>(args, scratch, out, [&] { prefetch_kv<S, W>(args, num_fetched, 8); });
    pack_values<W>(args, value_rows, value_panels, scratch.packed, num_fetched);
    Panels<S> values{scratch.packed, ptrdiff_t{kSegmentKeys} * kLanes};
    gemm<S>(scratch.probs, args.num_queries, values, value_panels, ceil_div(args.num_keys, kVnni<S>), out.acc,
            {kSegmentKeys, static_cast<ptrdiff_t>(padded_head_dim(args.head_dim))}, values);
}
