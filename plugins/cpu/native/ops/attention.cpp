#include "ops/attention.hpp"

#include <cstring>

namespace specserve {

namespace {
constexpr size_t kTilesPerThread = 4;  // with fewer tiles than this, segments and heads are units of their own

size_t in_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

char* aligned(std::vector<char>& memory) {
    return memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
}
}  // namespace

template <typename S>
Partial Attention<S>::partial(char* memory, int count) const {
    size_t line = in_lines(static_cast<size_t>(count) * 4);
    return {reinterpret_cast<float*>(memory), reinterpret_cast<float*>(memory + line),
            reinterpret_cast<float*>(memory + 2 * line)};
}

template <typename S>
void Attention<S>::set_up(Desk& desk, int most) {
    size_t heads = static_cast<size_t>(heads_.keys), count = static_cast<size_t>(most);
    size_t tile = in_lines(count * static_cast<size_t>(heads_.dim) * sizeof(S)), slots = kSegment * sizeof(int64_t);
    desk.memory.resize(tile * (heads + 1) + in_lines(count * sizeof(int)) + 2 * slots + partial_bytes_ * (heads + 1) +
                       in_lines(attend_scratch(most, heads_.dim)) + 64);
    char* at = aligned(desk.memory);
    auto next = [&](size_t bytes) { return std::exchange(at, at + bytes); };
    desk.queries = reinterpret_cast<S*>(next(tile * heads));
    desk.results = reinterpret_cast<S*>(next(tile));
    desk.lengths = reinterpret_cast<int*>(next(in_lines(count * sizeof(int))));
    for (int64_t*& each : desk.slots) each = reinterpret_cast<int64_t*>(next(slots));
    desk.states = next(partial_bytes_ * heads);
    desk.part = next(partial_bytes_);
    desk.scratch = at;
}

template <typename S>
void Attention<S>::prepare(const Plan& plan, int threads) {
    const std::vector<Tile>& tiles = plan.tiles();
    int most = 1;
    for (const Tile& tile : tiles) most = std::max(most, tile.rows * heads_.group());
    if (most > most_ || static_cast<int>(desks_.size()) != threads) {
        most_ = std::max(most, most_);
        size_t wide = static_cast<size_t>(divided_up(heads_.dim, kLanes)) * kLanes, count = static_cast<size_t>(most_);
        partial_bytes_ = 2 * in_lines(count * 4) + in_lines(count * wide * 4);
        desks_.resize(static_cast<size_t>(threads));
        for (Desk& desk : desks_) set_up(desk, most_);
    }
    split_ = threads > 1 && tiles.size() < kTilesPerThread * static_cast<size_t>(threads);
    if (!split_) return;
    units_.clear();
    first_unit_.clear();
    size_t pairs = tiles.size() * static_cast<size_t>(heads_.keys);
    if (num_left_ < pairs) left_ = std::make_unique<std::atomic<int>[]>(num_left_ = pairs);
    for (int t = 0; t < static_cast<int>(tiles.size()); ++t) {
        const Tile& tile = tiles[static_cast<size_t>(t)];
        first_unit_.push_back(units_.size());
        for (int s = 0; s < segments_of(tile); ++s)
            for (int h = 0; h < heads_.keys; ++h) units_.push_back({t, s, h});
        for (int h = 0; h < heads_.keys; ++h) left_[static_cast<size_t>(t * heads_.keys + h)] = segments_of(tile);
    }
    size_t bytes = units_.size() * partial_bytes_ + 64;
    if (partials_.size() < bytes) partials_.resize(bytes);
}

// The tile's queries for key heads [begin, end), gathered where more than one row makes them lie apart.
template <typename S>
void Attention<S>::take(const Tile& tile, int begin, int end, const Call& call, Desk& desk) const {
    int group = heads_.group();
    size_t wide = static_cast<size_t>(group * heads_.dim);
    for (int h = begin; h < end; ++h)
        for (int r = 0; r < tile.rows; ++r)
            std::memcpy(desk.queries + static_cast<size_t>((h * tile.rows + r)) * wide,
                        call.q + (tile.row + r) * call.q_stride + static_cast<ptrdiff_t>(wide) * h, wide * sizeof(S));
    for (int i = 0; i < tile.rows * group; ++i) desk.lengths[i] = tile.seen + i / group;
}

template <typename S>
void Attention<S>::attend(const Tile& tile, int head, int segment, const Call& call, const Desk& desk,
                          const int64_t* slots, Ahead<S> ahead, Partial out) const {
    int count = tile.rows * heads_.group();
    layout_.attend({desk.queries + ptrdiff_t{head} * count * heads_.dim, desk.lengths, call.window, count,
                    call.cache.keys + at(head), call.cache.values + at(head), slots, call.cache.slot_size(),
                    segment * kSegment, keys_of(tile, segment), heads_.dim, scale_, ahead},
                   out, desk.scratch);
}

template <typename S>
void Attention<S>::finish(const Tile& tile, int head, Partial state, const Call& call, Desk& desk) const {
    int group = heads_.group();
    ptrdiff_t wide = ptrdiff_t{group} * heads_.dim, row = ptrdiff_t{heads_.queries} * heads_.dim;
    S* to = call.out + tile.row * row + head * wide;
    if (tile.rows == 1) return table_.conclude(state, group, heads_.dim, to);
    table_.conclude(state, tile.rows * group, heads_.dim, desk.results);
    for (int r = 0; r < tile.rows; ++r)
        std::memcpy(to + r * row, desk.results + r * wide, static_cast<size_t>(wide) * sizeof(S));
}

// All heads of a segment, then the next segment: the cache is read from front to back. `next`: the thread's next tile.
template <typename S>
void Attention<S>::whole(const Tile& tile, const Tile* next, const Call& call, Desk& desk) const {
    int count = tile.rows * heads_.group(), begin = first_segment(tile, call.window), end = segments_of(tile);
    take(tile, 0, heads_.keys, call, desk);
    auto state = [&](int head) { return partial(desk.states + partial_bytes_ * static_cast<size_t>(head), count); };
    for (int h = 0; h < heads_.keys; ++h) std::fill_n(state(h).total, count, 0.0f);
    int64_t *now = desk.slots[0], *later = desk.slots[1];
    call.plan.slots(tile, begin * kSegment, keys_of(tile, begin), now);
    for (int s = begin; s < end; ++s, std::swap(now, later)) {
        const Tile* follower = s + 1 < end ? &tile : next;
        int follows = s + 1 < end ? s + 1 : next ? first_segment(*next, call.window) : 0;
        int num_later = follower ? keys_of(*follower, follows) : 0;
        if (follower) call.plan.slots(*follower, follows * kSegment, num_later, later);
        for (int h = 0; h < heads_.keys; ++h) {
            Ahead<S> ahead{call.cache.keys, call.cache.values, later, num_later};
            if (h + 1 < heads_.keys)
                ahead = {call.cache.keys + at(h + 1), call.cache.values + at(h + 1), now, keys_of(tile, s)};
            Partial part = partial(desk.part, count);
            attend(tile, h, s, call, desk, now, ahead, part);
            table_.merge(state(h), part, count, heads_.dim);
        }
    }
    for (int h = 0; h < heads_.keys; ++h) finish(tile, h, state(h), call, desk);
}

// One segment of one head; who does the last one of a head merges them all, first to last.
template <typename S>
void Attention<S>::split(const Unit& unit, const Unit* next, const Call& call, Desk& desk) {
    const std::vector<Tile>& tiles = call.plan.tiles();
    const Tile& tile = tiles[static_cast<size_t>(unit.tile)];
    int count = tile.rows * heads_.group(), begin = first_segment(tile, call.window), end = segments_of(tile);
    char* shared = aligned(partials_);
    auto part = [&](int s) {
        return partial(shared + partial_bytes_ * (first_unit_[static_cast<size_t>(unit.tile)] +
                                                  static_cast<size_t>(s * heads_.keys + unit.head)),
                       count);
    };
    if (unit.segment >= begin) {
        take(tile, unit.head, unit.head + 1, call, desk);
        call.plan.slots(tile, unit.segment * kSegment, keys_of(tile, unit.segment), desk.slots[0]);
        Ahead<S> ahead{nullptr, nullptr, desk.slots[1], 0};
        if (next) {
            const Tile& follower = tiles[static_cast<size_t>(next->tile)];
            ahead.count = keys_of(follower, next->segment);
            call.plan.slots(follower, next->segment * kSegment, ahead.count, desk.slots[1]);
            ahead.keys = call.cache.keys + at(next->head);
            ahead.values = call.cache.values + at(next->head);
        }
        attend(tile, unit.head, unit.segment, call, desk, desk.slots[0], ahead, part(unit.segment));
    }
    std::atomic<int>& left = left_[static_cast<size_t>(unit.tile * heads_.keys + unit.head)];
    if (left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    left.store(end, std::memory_order_relaxed);  // for the next layer
    Partial state = partial(desk.states, count);
    std::fill_n(state.total, count, 0.0f);
    for (int s = begin; s < end; ++s) table_.merge(state, part(s), count, heads_.dim);
    finish(tile, unit.head, state, call, desk);
}

template <typename S>
void Attention<S>::fetch_first(const Pool::Crew& crew, const Plan& plan, CacheLayer<S> cache, int window) const {
    const std::vector<Tile>& tiles = plan.tiles();
    size_t task = static_cast<size_t>(crew.first_task(static_cast<int>(split_ ? units_.size() : tiles.size())));
    const Tile& tile = split_ ? tiles[static_cast<size_t>(units_[task].tile)] : *tile_of(plan, static_cast<int>(task));
    int head = split_ ? units_[task].head : 0, segment = split_ ? units_[task].segment : first_segment(tile, window);
    int64_t slots[kSegment];
    int count = keys_of(tile, segment);
    plan.slots(tile, segment * kSegment, count, slots);
    ptrdiff_t numbers = ptrdiff_t{layout_.slots} * heads_.dim, line = 64 / static_cast<ptrdiff_t>(sizeof(S));
    for (int k = 0; k < count; k += layout_.slots) {
        ptrdiff_t from = at(head) + slots[k] / layout_.slots * layout_.slots * cache.slot_size();
        for (ptrdiff_t i = 0; i < numbers; i += line) __builtin_prefetch(cache.keys + from + i, 0, 2);
        for (ptrdiff_t i = 0; i < numbers; i += line) __builtin_prefetch(cache.values + from + i, 0, 2);
    }
}

template <typename S>
void Attention<S>::run(Pool::Crew& crew, const Plan& plan, const S* q, ptrdiff_t q_stride, CacheLayer<S> cache,
                       int window, S* out) {
    Call call{plan, q, q_stride, cache, window, out};
    Desk& desk = desks_[static_cast<size_t>(crew.thread())];
    if (split_)
        return crew.share(static_cast<int>(units_.size()), [&](int task) {
            size_t next = static_cast<size_t>(task) + 1;
            split(units_[static_cast<size_t>(task)], next < units_.size() ? &units_[next] : nullptr, call, desk);
        });
    crew.share(static_cast<int>(plan.tiles().size()), [&](int task) {
        const Tile* tile = tile_of(plan, task);
        whole(*tile, tile == plan.tiles().data() ? nullptr : tile - 1, call, desk);
    });
}

template class Attention<Bf16>;
template class Attention<float>;

}  // namespace specserve
