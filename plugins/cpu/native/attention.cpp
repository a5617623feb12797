#include "attention.hpp"

#include <cstring>

namespace specserve {

namespace {
constexpr int kUnitsPerThread = 6;  // fewer units than this, and segments become units of their own

size_t in_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }
}  // namespace

template <typename S>
size_t Attention<S>::partial_bytes(int count) const {
    size_t wide = static_cast<size_t>(divided_up(heads_.dim, kLanes)) * kLanes;
    return in_lines(static_cast<size_t>(count) * 4) * 2 + in_lines(static_cast<size_t>(count) * wide * 4);
}

template <typename S>
Partial Attention<S>::partial(char* memory, int count) const {
    size_t line = in_lines(static_cast<size_t>(count) * 4);
    return {reinterpret_cast<float*>(memory), reinterpret_cast<float*>(memory + line), reinterpret_cast<float*>(memory + 2 * line)};
}

template <typename S>
void Attention<S>::prepare(const Plan& plan, int threads) {
    const std::vector<Tile>& tiles = plan.tiles();
    size_t pairs = tiles.size() * static_cast<size_t>(heads_.keys);
    split_ = pairs < static_cast<size_t>(kUnitsPerThread * threads) && threads > 1;
    int most = 1;
    for (const Tile& tile : tiles) most = std::max(most, tile.rows * heads_.group());
    unit_bytes_ = partial_bytes(most);
    if (split_) {
        units_.clear();
        first_unit_.clear();
        for (size_t t = 0; t < tiles.size(); ++t) {
            first_unit_.push_back(static_cast<int>(units_.size()));
            for (int s = 0; s < segments_of(tiles[t]); ++s) units_.push_back({static_cast<int>(t), s});
        }
        partials_.resize(std::max(partials_.size(), units_.size() * static_cast<size_t>(heads_.keys) * unit_bytes_ + 64));
        if (num_left_ < pairs) {
            left_ = std::make_unique<std::atomic<int>[]>(pairs);
            num_left_ = pairs;
        }
        for (size_t t = 0; t < tiles.size(); ++t)
            for (int h = 0; h < heads_.keys; ++h) left_[t * static_cast<size_t>(heads_.keys) + static_cast<size_t>(h)] = segments_of(tiles[t]);
    }
    // queries, their lengths, slots, the kernel's own, two partial states, the result
    size_t bytes = in_lines(static_cast<size_t>(most * heads_.dim) * sizeof(S)) * 2 + in_lines(static_cast<size_t>(most) * 4) +
                   kSegment * sizeof(int64_t) + in_lines(attend_scratch(most, heads_.dim)) + 2 * unit_bytes_ + 64;
    scratch_.resize(static_cast<size_t>(threads));
    for (std::vector<char>& each : scratch_)
        if (each.size() < bytes) each.resize(bytes);
}

template <typename S>
const S* Attention<S>::gather(const Tile& tile, int head, const S* q, ptrdiff_t q_stride, S* room) const {
    size_t wide = static_cast<size_t>(heads_.group() * heads_.dim);
    const S* from = q + tile.row * q_stride + static_cast<ptrdiff_t>(wide) * head;
    if (tile.rows == 1) return from;
    for (int r = 0; r < tile.rows; ++r) std::memcpy(room + static_cast<size_t>(r) * wide, from + r * q_stride, wide * sizeof(S));
    return room;
}

template <typename S>
void Attention<S>::attend(const Plan& plan, const Tile& tile, int head, int segment, const S* queries, const int* lengths,
                          CacheLayer<S> cache, int window, Partial out, char* scratch) const {
    int64_t* slots = reinterpret_cast<int64_t*>(scratch);
    int first = segment * kSegment, num_keys = std::min(kSegment, tile.keys() - first);
    plan.slots(tile, first, num_keys, slots);
    ptrdiff_t at = ptrdiff_t{head} * heads_.dim;
    table_.attend({queries, lengths, window, tile.rows * heads_.group(), cache.keys + at, cache.values + at, slots,
                   ptrdiff_t{heads_.keys} * heads_.dim, first, num_keys, heads_.dim, scale_},
                  out, scratch + kSegment * sizeof(int64_t));
}

template <typename S>
void Attention<S>::finish(const Tile& tile, int head, Partial state, S* out, S* room) const {
    int group = heads_.group();
    ptrdiff_t wide = ptrdiff_t{group} * heads_.dim, row = ptrdiff_t{heads_.queries} * heads_.dim;
    S* to = out + tile.row * row + head * wide;
    if (tile.rows == 1) return table_.conclude(state, group, heads_.dim, to);
    table_.conclude(state, tile.rows * group, heads_.dim, room);
    for (int r = 0; r < tile.rows; ++r) std::memcpy(to + r * row, room + r * wide, static_cast<size_t>(wide) * sizeof(S));
}

template <typename S>
void Attention<S>::run(Pool::Crew& crew, const Plan& plan, const S* q, ptrdiff_t q_stride, CacheLayer<S> cache, int window,
                       S* out) {
    const std::vector<Tile>& tiles = plan.tiles();
    int heads = heads_.keys, group = heads_.group();
    char* memory = scratch_[static_cast<size_t>(crew.thread())].data();
    memory += (64 - reinterpret_cast<uintptr_t>(memory) % 64) % 64;
    int most = static_cast<int>(1);
    for (const Tile& tile : tiles) most = std::max(most, tile.rows * group);
    size_t query_bytes = in_lines(static_cast<size_t>(most * heads_.dim) * sizeof(S));
    S* room = reinterpret_cast<S*>(memory);
    S* result = reinterpret_cast<S*>(memory + query_bytes);
    int* lengths = reinterpret_cast<int*>(memory + 2 * query_bytes);
    char* states = memory + 2 * query_bytes + in_lines(static_cast<size_t>(most) * 4);
    char* scratch = states + 2 * unit_bytes_;
    auto lengths_of = [&](const Tile& tile) {
        for (int i = 0; i < tile.rows * group; ++i) lengths[i] = tile.seen + i / group;
    };
    auto first_segment = [&](const Tile& tile) { return window ? std::max(0, tile.seen - window) / kSegment : 0; };

    if (!split_) {
        crew.share(static_cast<int>(tiles.size()) * heads, [&](int task) {
            const Tile& tile = tiles[static_cast<size_t>(task / heads)];
            int head = task % heads, count = tile.rows * group;
            lengths_of(tile);
            const S* queries = gather(tile, head, q, q_stride, room);
            Partial state = partial(states, count), next = partial(states + unit_bytes_, count);
            for (int i = 0; i < count; ++i) state.total[i] = 0.0f;
            for (int s = first_segment(tile); s < segments_of(tile); ++s) {
                attend(plan, tile, head, s, queries, lengths, cache, window, next, scratch);
                table_.merge(state, next, count, heads_.dim);
            }
            finish(tile, head, state, out, result);
        });
        return;
    }
    char* shared = partials_.data() + (64 - reinterpret_cast<uintptr_t>(partials_.data()) % 64) % 64;
    crew.share(static_cast<int>(units_.size()) * heads, [&](int task) {
        auto [t, segment] = units_[static_cast<size_t>(task / heads)];
        const Tile& tile = tiles[static_cast<size_t>(t)];
        int head = task % heads, count = tile.rows * group, segments = segments_of(tile);
        auto part = [&](int s) {
            return partial(shared + unit_bytes_ * static_cast<size_t>((first_unit_[static_cast<size_t>(t)] + s) * heads + head), count);
        };
        if (segment >= first_segment(tile)) {
            lengths_of(tile);
            attend(plan, tile, head, segment, gather(tile, head, q, q_stride, room), lengths, cache, window, part(segment), scratch);
        }
        std::atomic<int>& left = left_[static_cast<size_t>(t * heads + head)];
        if (left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
        left.store(segments, std::memory_order_relaxed);  // for the next layer
        Partial state = partial(states, count);
        for (int i = 0; i < count; ++i) state.total[i] = 0.0f;
        for (int s = first_segment(tile); s < segments; ++s) table_.merge(state, part(s), count, heads_.dim);
        finish(tile, head, state, out, result);
    });
}

template class Attention<Bf16>;
template class Attention<float>;

}  // namespace specserve
