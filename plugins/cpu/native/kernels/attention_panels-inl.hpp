// Attention over a cache where sixteen neighbouring slots, a page, are stored as packed panels: nothing is packed in a
// step, except at the ends of draft tree branches, whose keys do not fill pages.
//
// A head's page of keys is one panel, [K group of head_dim][16 slots][kVnni]; its page of values is a part of every
// panel, [panel of head_dim][K group of slots][16][kVnni]. head_dim is a multiple of 16.

constexpr int kPageSlots = kLanes;
constexpr int kSegmentPages = kSegmentKeys / kPageSlots;
constexpr int kPrefetchSlack = 8;  // the last GEMM block may prefetch so many pages more than a segment has
template <typename S>
constexpr int kPageGroups = kPageSlots / kVnni<S>;  // K groups of a page of values

// The addresses of a segment's pages.
template <typename S>
struct PageTable {
    const S* pages[kSegmentPages + kPrefetchSlack];
};

// Views for gemm_paged (see gemm-inl.hpp). A page of keys is a panel.
template <typename S>
struct KeyPages {
    static constexpr int kContiguousGroups = kUnlimited;
    const S* const* pages;

    const S* at(int page, int k_group) const { return pages[page] + ptrdiff_t{k_group} * kLanes * kVnni<S>; }
    KeyPages from(int page) const { return {pages + page}; }
};

// A page of values has kPageGroups K groups of every panel.
template <typename S>
struct ValuePages {
    static constexpr int kContiguousGroups = kPageGroups<S>;
    const S* const* pages;
    int first_panel;

    const S* at(int panel, int k_group) const {
        int page = k_group / kPageGroups<S>, page_group = k_group % kPageGroups<S>;
        return pages[page] + ptrdiff_t{first_panel + panel} * kPageSlots * kLanes +
               ptrdiff_t{page_group} * kLanes * kVnni<S>;
    }
    ValuePages from(int panel) const { return {pages, first_panel + panel}; }
};

// The offset of element d of a slot's key or value in its page.
template <typename S>
INLINE ptrdiff_t key_offset(int64_t slot, int d) {
    return ptrdiff_t{d / kVnni<S>} * kPageSlots * kVnni<S> + slot % kPageSlots * kVnni<S> + d % kVnni<S>;
}
template <typename S>
INLINE ptrdiff_t value_offset(int64_t slot, int d) {
    ptrdiff_t page_slot = slot % kPageSlots;
    return ptrdiff_t{d / kLanes} * kPageSlots * kLanes + page_slot / kVnni<S> * kLanes * kVnni<S> +
           d % kLanes * kVnni<S> + page_slot % kVnni<S>;
}

// Stores the lanes kVnni elements apart. A vec file may have a faster overload.
template <typename S>
INLINE void store_strided(S* p, Vec x) {
    S lanes[kLanes];
    store(lanes, x);
    for (int i = 0; i < kLanes; ++i) p[kVnni<S> * i] = lanes[i];
}

template <typename S>
INLINE ptrdiff_t page_offset(KVCacheLayer<S> cache, int head, int64_t slot) {
    return slot / kPageSlots * kPageSlots * cache.slot_size() + ptrdiff_t{head} * cache.head_dim * kPageSlots;
}

template <typename S>
static void store_kv_in_panels(const S* key, const S* value, KVCacheLayer<S> cache, int head, int64_t slot,
                               float key_limit) {
    ptrdiff_t page = page_offset(cache, head, slot);
    alignas(64) S lanes[kLanes];
    for (int d = 0; d < cache.head_dim; d += kLanes) {
        store(lanes, clamp_finite(load(key + d), splat(key_limit)));
        for (int i = 0; i < kLanes; i += kVnni<S>)
            __builtin_memcpy(cache.keys + page + key_offset<S>(slot, d + i), lanes + i, kVnni<S> * sizeof(S));
        store_strided(cache.values + page + value_offset<S>(slot, d),
                      clamp_finite(load(value + d), splat(__builtin_inff())));
    }
}

template <typename S>
static void load_kv_from_panels(KVCacheLayer<S> cache, int head, int64_t slot, S* key, S* value) {
    ptrdiff_t page = page_offset(cache, head, slot);
    for (int d = 0; d < cache.head_dim; ++d) {
        key[d] = cache.keys[page + key_offset<S>(slot, d)];
        value[d] = cache.values[page + value_offset<S>(slot, d)];
    }
}

// The page of slots[0, count): in the cache if they are its first slots, else gathered into `copy`.
template <typename S, typename Offset>
INLINE const S* find_page(const S* base, const int64_t* slots, int count, const AttentionArgs<S>& args, S* copy,
                          Offset offset) {
    ptrdiff_t page_size = kPageSlots * args.slot_stride;
    // slots ascend within a block, so the first and the last suffice
    if (slots[0] % kPageSlots == 0 && slots[count - 1] == slots[0] + count - 1)
        return base + slots[0] / kPageSlots * page_size;
    for (int i = 0; i < kPageSlots; ++i) {
        int64_t slot = slots[i < count ? i : count - 1];
        const S* page = base + slot / kPageSlots * page_size;
        for (int d = 0; d < args.head_dim; ++d) copy[offset(i, d)] = page[offset(slot, d)];
    }
    return copy;
}

template <typename S, typename Offset>
INLINE void find_pages(const S* base, const AttentionArgs<S>& args, S* copies, Offset offset, PageTable<S>& table) {
    for (int k = 0, page = 0; k < args.num_keys; k += kPageSlots, ++page)
        table.pages[page] =
            find_page(base, args.slots + k, args.num_keys - k < kPageSlots ? args.num_keys - k : kPageSlots, args,
                      copies + ptrdiff_t{k} * args.head_dim, offset);
}

// The pages of slots[0, count) of one head, to be prefetched. Missing ones are replaced by a page that is in the
// processor's cache already.
template <typename S>
INLINE void find_pages_ahead(const S* base, const int64_t* slots, int count, const AttentionArgs<S>& args,
                             const PageTable<S>& current, PageTable<S>& table) {
    for (int i = 0; i < kSegmentPages + kPrefetchSlack; ++i) {
        bool exists = i < kSegmentPages && i * kPageSlots < count;
        table.pages[i] =
            exists ? base + slots[i * kPageSlots] / kPageSlots * kPageSlots * args.slot_stride : current.pages[0];
    }
}

// While keys are multiplied, the values of the same segment are prefetched; while these are, the keys of the next
// segment. Nothing is fetched earlier: the lines in flight stay few, and what has come is still in the L1 or L2 cache.
template <typename S>
static void attend_segment_in_panels(const AttentionArgs<S>& args, PartialAttention out, char* memory) {
    int num_pages = ceil_div(args.num_keys, kPageSlots), value_panels = args.head_dim / kLanes;
    AttentionScratch<S> scratch(args, memory);
    PageTable<S> current, ahead;
    find_pages(args.keys, args, scratch.gathered, key_offset<S>, current);
    find_pages_ahead(args.values, args.slots, args.num_keys, args, current, ahead);
    gemm_paged<S>(args.queries, args.num_queries, KeyPages<S>{current.pages}, KeyPages<S>{ahead.pages}, num_pages,
                  args.head_dim / kVnni<S>, scratch.scores, {args.head_dim, kSegmentKeys}, scratch.packed);
    softmax_rows(args, scratch, out, [] {});
    find_pages(args.values, args, scratch.gathered, value_offset<S>, current);
    find_pages_ahead(args.next.keys, args.next.slots, args.next.count, args, current, ahead);
    gemm_paged<S>(scratch.probs, args.num_queries, ValuePages<S>{current.pages, 0}, ValuePages<S>{ahead.pages, 0},
                  value_panels, num_pages * kPageGroups<S>, out.acc, {kSegmentKeys, args.head_dim}, scratch.packed);
}
