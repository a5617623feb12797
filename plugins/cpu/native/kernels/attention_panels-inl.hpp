// Attention over a cache where sixteen neighbouring slots, a page, are stored as packed panels: nothing is packed in a
// step, except at the ends of draft tree branches, whose keys do not fill pages.
//
// A head's page of keys is one panel, [K group of head_dim][16 slots][kVnni]; its page of values is a part of every
// panel, [panel of head_dim][K group of slots][16][kVnni]. Integers are in the order of 8-bit weights, with
// [kVnni][16] at the end, and the sixteen scales of their slots follow the page. head_dim is a multiple of 16.

constexpr int kPageSlots = kLanes;
constexpr int kSegmentPages = kSegmentKeys / kPageSlots;
constexpr int kMaxHeads = 2;
template <typename S>
constexpr int kPageGroups = kPageSlots / kVnni<S>;  // K groups of a page of values

// Pages are prefetched this long before they are multiplied: far enough for memory, near enough for the L1 cache.
constexpr int kAheadBytes = 8192;
constexpr int kMaxPagesAhead = 8;
constexpr int kPrefetchSlack = 8;  // a GEMM block, or a softmax, may prefetch this many pages more

// The addresses of pages in the order in which they are multiplied: keys, then values, then some of the next segment.
template <typename W>
struct PageTable {
    const W* pages[2 * kMaxHeads * kSegmentPages + kMaxPagesAhead + kPrefetchSlack];
};

// Views for gemm_paged (see gemm-inl.hpp). A page of keys is a panel.
template <typename S, typename W = S>
struct KeyPages {
    static constexpr int kContiguousGroups = kUnlimited, kLocality = 3;
    const W* const* pages;

    const W* at(int page, int k_group) const { return pages[page] + ptrdiff_t{k_group} * kLanes * kVnni<S>; }
    KeyPages from(int page) const { return {pages + page}; }
};

// A page of values has kPageGroups K groups of every panel.
template <typename S, typename W = S>
struct ValuePages {
    static constexpr int kContiguousGroups = kPageGroups<S>, kLocality = 3;
    const W* const* pages;
    int first_panel;

    const W* at(int panel, int k_group) const {
        int page = k_group / kPageGroups<S>, page_group = k_group % kPageGroups<S>;
        return pages[page] + ptrdiff_t{first_panel + panel} * kPageSlots * kLanes +
               ptrdiff_t{page_group} * kLanes * kVnni<S>;
    }
    ValuePages from(int panel) const { return {pages, first_panel + panel}; }
};

// Where element d of a slot's key or value lies in its page; kRun elements follow each other there.
template <typename S, typename W>
struct PageOffsets {
    static constexpr int kRun = kVnni<S>;
    static ptrdiff_t key(int64_t slot, int d) {
        return ptrdiff_t{d / kVnni<S>} * kPageSlots * kVnni<S> + slot % kPageSlots * kVnni<S> + d % kVnni<S>;
    }
    static ptrdiff_t value(int64_t slot, int d) {
        ptrdiff_t page_slot = slot % kPageSlots;
        return ptrdiff_t{d / kLanes} * kPageSlots * kLanes + page_slot / kVnni<S> * kLanes * kVnni<S> +
               d % kLanes * kVnni<S> + page_slot % kVnni<S>;
    }
};
template <typename S>
struct PageOffsets<S, Int8<S>> {
    static constexpr int kRun = 1;
    static ptrdiff_t key(int64_t slot, int d) { return ptrdiff_t{d} * kPageSlots + slot % kPageSlots; }
    static ptrdiff_t value(int64_t slot, int d) {
        return ptrdiff_t{d / kLanes} * kPageSlots * kLanes + slot % kPageSlots * kLanes + d % kLanes;
    }
};

// A head's page of keys or of values in the cache: its elements, then the scales of its slots.
template <typename W>
class HeadPage {
   public:
    HeadPage(char* base, KVCacheLayer cache, int head, int64_t slot)
        : elements(reinterpret_cast<W*>(base + slot / kPageSlots * kPageSlots * cache.slot_bytes() +
                                        head * cache.head_bytes * kPageSlots)),
          scales_(reinterpret_cast<char*>(elements + ptrdiff_t{cache.head_dim} * kPageSlots)) {}

    char* scale(int64_t slot) const { return scales_ + slot % kPageSlots * kScaleBytes<W>; }

    W* const elements;

   private:
    char* scales_;
};

template <typename S, typename W>
static void store_kv_in_panels(const S* key, const S* value, KVCacheLayer cache, int head, int64_t slot,
                               float key_limit) {
    HeadPage<W> keys(cache.keys, cache, head, slot), values(cache.values, cache, head, slot);
    KeptNumbers<S, W> kept_key(key, cache.head_dim, key_limit), kept_value(value, cache.head_dim, __builtin_inff());
    using Offsets = PageOffsets<S, W>;
    alignas(64) W lanes[kLanes];
    for (int d = 0; d < cache.head_dim; d += kLanes) {
        kept_key.store_at(lanes, d, kLanes);
        for (int i = 0; i < kLanes; i += Offsets::kRun)
            __builtin_memcpy(keys.elements + Offsets::key(slot, d + i), lanes + i, Offsets::kRun * sizeof(W));
        kept_value.store_in_panel(values.elements + Offsets::value(slot, d), d);
    }
    float key_scale = kept_key.scale(), value_scale = kept_value.scale();
    __builtin_memcpy(keys.scale(slot), &key_scale, kScaleBytes<W>);
    __builtin_memcpy(values.scale(slot), &value_scale, kScaleBytes<W>);
}

// Copies of a head's key and value in a slot: elements in order, then the scale.
template <typename S, typename W>
static void read_slot_in_panels(KVCacheLayer cache, int head, int64_t slot, char* key, char* value) {
    HeadPage<W> keys(cache.keys, cache, head, slot), values(cache.values, cache, head, slot);
    W *to_key = reinterpret_cast<W*>(key), *to_value = reinterpret_cast<W*>(value);
    for (int d = 0; d < cache.head_dim; ++d) {
        to_key[d] = keys.elements[PageOffsets<S, W>::key(slot, d)];
        to_value[d] = values.elements[PageOffsets<S, W>::value(slot, d)];
    }
    __builtin_memcpy(to_key + cache.head_dim, keys.scale(slot), kScaleBytes<W>);
    __builtin_memcpy(to_value + cache.head_dim, values.scale(slot), kScaleBytes<W>);
}
template <typename S, typename W>
static void write_slot_in_panels(const char* key, const char* value, KVCacheLayer cache, int head, int64_t slot) {
    HeadPage<W> keys(cache.keys, cache, head, slot), values(cache.values, cache, head, slot);
    const W *of_key = reinterpret_cast<const W*>(key), *of_value = reinterpret_cast<const W*>(value);
    for (int d = 0; d < cache.head_dim; ++d) {
        keys.elements[PageOffsets<S, W>::key(slot, d)] = of_key[d];
        values.elements[PageOffsets<S, W>::value(slot, d)] = of_value[d];
    }
    __builtin_memcpy(keys.scale(slot), of_key + cache.head_dim, kScaleBytes<W>);
    __builtin_memcpy(values.scale(slot), of_value + cache.head_dim, kScaleBytes<W>);
}

// The pages of one head's keys or values. base: its first page in the cache.
template <typename S, typename W>
class HeadPages {
   public:
    HeadPages(const char* base, const AttentionArgs<S>& args)
        : base_(base), page_bytes_(kPageSlots * args.slot_bytes), head_dim_(args.head_dim) {}

    const W* page_of(int64_t slot) const { return reinterpret_cast<const W*>(base_ + slot / kPageSlots * page_bytes_); }
    const float* scales(const W* page) const {
        return reinterpret_cast<const float*>(page + ptrdiff_t{head_dim_} * kPageSlots);
    }

    // The page of slots[0, count): in the cache if they are its first slots, else gathered into `copy`. scales: gets
    // sixteen, of which those behind `count` are finite.
    template <typename Offset>
    const W* find(const int64_t* slots, int count, Offset offset, W* copy, float* scales_out) const {
        // slots ascend within a block, so the first and the last suffice
        if (slots[0] % kPageSlots == 0 && slots[count - 1] == slots[0] + count - 1) {
            const W* page = page_of(slots[0]);
            __builtin_memcpy(scales_out, scales(page), kPageSlots * kScaleBytes<W>);
            return page;
        }
        for (int i = 0; i < kPageSlots; ++i) {
            int64_t slot = slots[i < count ? i : count - 1];
            const W* page = page_of(slot);
            for (int d = 0; d < head_dim_; ++d) copy[offset(i, d)] = page[offset(slot, d)];
            __builtin_memcpy(scales_out + i, scales(page) + slot % kPageSlots, kScaleBytes<W>);
        }
        return copy;
    }

   private:
    const char* base_;
    ptrdiff_t page_bytes_;
    int head_dim_;
};

template <typename S, typename W, typename Offset>
INLINE void find_pages(const HeadPages<S, W>& pages, const AttentionArgs<S>& args, Offset offset, W* copies,
                       float* scales, const W** to) {
    for (int k = 0; k < args.num_keys; k += kPageSlots) {
        int count = args.num_keys - k < kPageSlots ? args.num_keys - k : kPageSlots;
        *to++ = pages.find(args.slots + k, count, offset, copies + ptrdiff_t{k} * args.head_dim, scales + k);
    }
}

// The first pages of slots[0, count), to be prefetched; their scales are prefetched here. Missing ones are replaced by
// a page that is in the processor's cache already.
template <typename S, typename W>
INLINE void find_pages_ahead(const HeadPages<S, W>& pages, const int64_t* slots, int count, int num_pages,
                             const W* cached, const W** to) {
    for (int i = 0; i < num_pages; ++i) {
        bool exists = i * kPageSlots < count;
        to[i] = exists ? pages.page_of(slots[i * kPageSlots]) : cached;
        if constexpr (kScaleBytes<W> > 0)
            if (exists) __builtin_prefetch(pages.scales(to[i]), 0, 2);
    }
}

template <typename W>
INLINE void prefetch_pages(const W* const* pages, int num_pages, ptrdiff_t page_bytes) {
    for (int i = 0; i < num_pages; ++i)
        for (ptrdiff_t at = 0; at < page_bytes; at += 64)
            __builtin_prefetch(reinterpret_cast<const char*>(pages[i]) + at, 0, 3);
}

// out = x * w for panels in pages; `next`: as many panels, to be prefetched. scratch: as large as the panels, of S.
template <typename S, template <typename, typename> class Pages>
INLINE void multiply_pages(const S* x, int rows, Pages<S, S> w, Pages<S, S> next, int panels, int k_groups, float* out,
                           RowStrides strides, S* scratch) {
    gemm_paged<S>(x, rows, w, next, panels, k_groups, out, strides, scratch);
}
// Integers are widened in registers or, for many rows, in memory.
template <typename S, template <typename, typename> class Pages>
INLINE void multiply_pages(const S* x, int rows, Pages<S, Int8<S>> w, Pages<S, Int8<S>> next, int panels, int k_groups,
                           float* out, RowStrides strides, S* scratch) {
    if constexpr (kDirectRows<S> > 0)
        if (rows <= kDirectRows<S>) return gemm_paged<S>(x, rows, w, next, panels, k_groups, out, strides, scratch);
    constexpr int kGroupSize = kLanes * kVnni<S>;
    for (int p = 0; p < panels; ++p)
        for (int g = 0; g < k_groups; ++g) {
            __builtin_prefetch(next.at(p, g), 0, 2);
            widen_weights(w.at(p, g), scratch + (ptrdiff_t{p} * k_groups + g) * kGroupSize);
        }
    Panels<S> wide{scratch, ptrdiff_t{k_groups} * kGroupSize};
    gemm<S>(x, rows, wide, panels, k_groups, out, strides, wide);
}

// Each page is prefetched while an earlier one is multiplied, and some more during each softmax, which reads none.
template <typename S, typename W>
static void attend_segment_in_panels(const AttentionArgs<S>& args, PartialAttention out, char* memory) {
    using Offsets = PageOffsets<S, W>;
    int num_pages = ceil_div(args.num_keys, kPageSlots), value_panels = args.head_dim / kLanes;
    ptrdiff_t page_bytes = kPageSlots * (args.head_dim * static_cast<ptrdiff_t>(sizeof(W)) + kScaleBytes<W>);
    int ahead = static_cast<int>(page_bytes < kAheadBytes ? kAheadBytes / page_bytes : 1);
    if (ahead > kMaxPagesAhead) ahead = kMaxPagesAhead;
    int more = (ahead + 1) / 2;
    PageTable<W> table;
    auto keys = [&](int head) { return table.pages + head * num_pages; };
    auto values = [&](int head) { return keys(args.num_heads + head); };
    auto pages_of = [&](const char* base, int head) { return HeadPages<S, W>(base + head * page_bytes, args); };
    auto scratch = [&](int head) { return AttentionScratch<S>(args, head, memory); };
    auto copies = [&](int head) { return reinterpret_cast<W*>(scratch(head).gathered); };
    for (int h = 0; h < args.num_heads; ++h)
        find_pages(pages_of(args.keys, h), args, Offsets::key, copies(h), scratch(h).key_scales, keys(h));
    for (int h = 0; h < args.num_heads; ++h)
        find_pages_ahead(pages_of(args.values, h), args.slots, args.num_keys, num_pages, *keys(0), values(h));
    find_pages_ahead(pages_of(args.next.keys, 0), args.next.slots, args.next.count, ahead + kPrefetchSlack, *keys(0),
                     values(args.num_heads));
    for (int h = 0; h < args.num_heads; ++h)
        multiply_pages(args.queries + ptrdiff_t{h} * args.num_queries * args.head_dim, args.num_queries,
                       KeyPages<S, W>{keys(h)}, KeyPages<S, W>{keys(h) + ahead}, num_pages, args.head_dim / kVnni<S>,
                       scratch(h).scores, {args.head_dim, kSegmentKeys}, scratch(h).packed);
    for (int h = 0; h < args.num_heads; ++h) {
        find_pages(pages_of(args.values, h), args, Offsets::value, copies(h), scratch(h).value_scales, values(h));
        prefetch_pages(values(0) + ahead + h * more, more, page_bytes);
        softmax_rows<W>(args, scratch(h), out.from(h * args.num_queries, args.head_dim), [] {});
    }
    for (int h = 0; h < args.num_heads; ++h)
        multiply_pages(scratch(h).probs, args.num_queries, ValuePages<S, W>{values(h), 0},
                       ValuePages<S, W>{values(h) + ahead, 0}, value_panels, num_pages * kPageGroups<S>,
                       out.from(h * args.num_queries, args.head_dim).acc, {kSegmentKeys, args.head_dim},
                       scratch(h).packed);
}
