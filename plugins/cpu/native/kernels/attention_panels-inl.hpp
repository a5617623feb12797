// Attention over a cache in which sixteen neighbouring slots, a page, lie as the panels that products take: nothing is
// packed where a request's keys fill pages, and only in the ends of branches they do not. Included after attend.hpp.
//
// A head's page of keys is one panel, [group of its numbers][16 slots][step]; its page of values has a part of every
// panel, [16 of its numbers][group of slots][16][step]. Both have the size of sixteen slots, for heads of a multiple
// of 16.

constexpr int kPage = kLanes;             // slots
constexpr int kPages = kSegment / kPage;  // of a segment
constexpr int kSpare = 8;                 // pages that the fetching of a pass may reach behind a segment's
template <typename S>
constexpr int kPageGroups = kPage / kStep<S>;  // of slots

// The pages of a segment.
template <typename S>
struct Pages {
    const S* at[kPages + kSpare];
};

template <typename S>
struct KeyPages {
    static constexpr int kRun = 1 << 30;
    const S* const* at;  // a page is a panel
    const S* of(int page, int group) const { return at[page] + ptrdiff_t{group} * kLanes * kStep<S>; }
    KeyPages from(int page) const { return {at + page}; }
};

template <typename S>
struct ValuePages {
    static constexpr int kRun = kPageGroups<S>;
    const S* const* at;  // a page holds some groups of every panel
    int panel;           // the first
    const S* of(int p, int group) const {
        int page = group / kPageGroups<S>, inside = group % kPageGroups<S>;
        return at[page] + ptrdiff_t{panel + p} * kPage * kLanes + ptrdiff_t{inside} * kLanes * kStep<S>;
    }
    ValuePages from(int p) const { return {at, panel + p}; }
};

// Where one slot's keys or values are in their page.
template <typename S>
INLINE ptrdiff_t place_of_key(int64_t slot, int number) {
    return ptrdiff_t{number / kStep<S>} * kPage * kStep<S> + slot % kPage * kStep<S> + number % kStep<S>;
}
template <typename S>
INLINE ptrdiff_t place_of_value(int64_t slot, int number) {
    ptrdiff_t inside = slot % kPage;
    return ptrdiff_t{number / kLanes} * kPage * kLanes + inside / kStep<S> * kLanes * kStep<S> +
           number % kLanes * kStep<S> + inside % kStep<S>;
}

// Sixteen numbers, a step apart. A lane file may have a quicker one.
template <typename S>
INLINE void store_apart(S* p, F x) {
    S numbers[kLanes];
    store(numbers, x);
    for (int i = 0; i < kLanes; ++i) p[kStep<S> * i] = numbers[i];
}

template <typename S>
INLINE ptrdiff_t page_at(CacheLayer<S> cache, int head, int64_t slot) {
    return slot / kPage * kPage * cache.slot_size() + ptrdiff_t{head} * cache.dim * kPage;
}

template <typename S>
static void keep_in_panels(const S* key, const S* value, CacheLayer<S> cache, int head, int64_t slot, float key_limit) {
    ptrdiff_t page = page_at(cache, head, slot);
    alignas(64) S numbers[kLanes];
    for (int d = 0; d < cache.dim; d += kLanes) {
        store(numbers, finite(load(key + d), splat(key_limit)));
        for (int i = 0; i < kLanes; i += kStep<S>)
            __builtin_memcpy(cache.keys + page + place_of_key<S>(slot, d + i), numbers + i, kStep<S> * sizeof(S));
        store_apart(cache.values + page + place_of_value<S>(slot, d), finite(load(value + d), splat(__builtin_inff())));
    }
}

template <typename S>
static void take_from_panels(CacheLayer<S> cache, int head, int64_t slot, S* key, S* value) {
    ptrdiff_t page = page_at(cache, head, slot);
    for (int d = 0; d < cache.dim; ++d) {
        key[d] = cache.keys[page + place_of_key<S>(slot, d)];
        value[d] = cache.values[page + place_of_value<S>(slot, d)];
    }
}

// The page of keys or values of slots[0..count): where it lies, or a copy at `copy` where the slots are no page's first
// ones.
template <typename S, typename Place>
INLINE const S* page_of(const S* base, const int64_t* slots, int count, const Attend<S>& a, S* copy, Place place) {
    ptrdiff_t size = kPage * a.slot_stride;
    // slots of a path ascend within a block, so the first and the last tell
    if (slots[0] % kPage == 0 && slots[count - 1] == slots[0] + count - 1) return base + slots[0] / kPage * size;
    for (int i = 0; i < kPage; ++i) {
        int64_t slot = slots[i < count ? i : count - 1];
        const S* from = base + slot / kPage * size;
        for (int d = 0; d < a.head_dim; ++d) copy[place(i, d)] = from[place(slot, d)];
    }
    return copy;
}

template <typename S, typename Place>
INLINE void find_pages(const S* base, const Attend<S>& a, S* copies, Place place, Pages<S>& pages) {
    for (int k = 0, page = 0; k < a.num_keys; k += kPage, ++page)
        pages.at[page] = page_of(base, a.slots + k, a.num_keys - k < kPage ? a.num_keys - k : kPage, a,
                                 copies + ptrdiff_t{k} * a.head_dim, place);
}

// What comes after the segment; what is not there is replaced by something that is in the caches already.
template <typename S>
INLINE void find_ahead(const S* base, const Attend<S>& a, const Pages<S>& now, Pages<S>& pages) {
    for (int page = 0; page < kPages + kSpare; ++page) {
        bool known = page < kPages && page * kPage < a.ahead.count;
        pages.at[page] = known ? base + a.ahead.slots[page * kPage] / kPage * kPage * a.slot_stride : now.at[0];
    }
}

template <typename S>
static void attend_in_panels(const Attend<S>& a, Partial out, char* memory) {
    int num_pages = divided_up(a.num_keys, kPage), panels = a.head_dim / kLanes;
    Scratch<S> scratch(a, memory);
    Pages<S> pages, ahead;
    find_pages(a.keys, a, scratch.copies, place_of_key<S>, pages);
    find_ahead(a.ahead.keys, a, pages, ahead);
    gemm_of<S>(a.queries, a.count, KeyPages<S>{pages.at}, KeyPages<S>{ahead.at}, num_pages, a.head_dim / kStep<S>,
               scratch.scores, {a.head_dim, kSegment}, scratch.packed);
    weigh_all(a, scratch, out, [] {});
    find_pages(a.values, a, scratch.copies, place_of_value<S>, pages);
    find_ahead(a.ahead.values, a, pages, ahead);
    gemm_of<S>(scratch.masses, a.count, ValuePages<S>{pages.at, 0}, ValuePages<S>{ahead.at, 0}, panels,
               num_pages * kPageGroups<S>, out.values, {kSegment, a.head_dim}, scratch.packed);
}
