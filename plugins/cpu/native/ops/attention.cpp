#include "ops/attention.hpp"

#include <cstring>
#include <utility>

namespace specserve {

namespace {
constexpr size_t kTilesPerThread = 4;  // with fewer tiles, tasks are split by segment and KV head
// Keys and values are prefetched while the linear maps before multiply, where those have several blocks of rows and
// tiles are small: that many rows in all, and in a tile on average.
constexpr int kMinRowsAhead = 9, kMaxTileRowsAhead = 8;
constexpr ptrdiff_t kMaxBytesAhead = ptrdiff_t{16} << 20;  // of all threads: they wait in a cache that these share
}  // namespace

template <typename S>
void Attention<S>::prepare(const AttentionPlan& plan, int num_threads) {
    const std::vector<Tile>& tiles = plan.tiles();
    int max_queries = 1;
    for (const Tile& tile : tiles) max_queries = std::max(max_queries, tile.num_rows * heads_.group_size());
    if (max_queries > max_queries_ || static_cast<int>(workspaces_.size()) != num_threads) {
        max_queries_ = std::max(max_queries, max_queries_);
        partial_bytes_ = partial_bytes(max_queries_, heads_.head_dim);
        workspaces_.resize(static_cast<size_t>(num_threads));
        for (Workspace& workspace : workspaces_) workspace.resize(max_queries_, layout_.max_heads, heads_);
        pages_.resize(workspaces_.size());
    }
    for (std::vector<ptrdiff_t>& pages : pages_) pages.clear();
    is_split_ = num_threads > 1 && tiles.size() < kTilesPerThread * static_cast<size_t>(num_threads);
    if (is_split_) prepare_split(tiles);
}

template <typename S>
void Attention<S>::prepare_split(const std::vector<Tile>& tiles) {
    split_tasks_.clear();
    first_task_.clear();
    int kv_heads = heads_.num_kv_heads;
    size_t size = tiles.size() * static_cast<size_t>(kv_heads);
    if (remaining_size_ < size) remaining_ = std::make_unique<std::atomic<int>[]>(remaining_size_ = size);
    for (int t = 0; t < static_cast<int>(tiles.size()); ++t) {
        const Tile& tile = tiles[static_cast<size_t>(t)];
        first_task_.push_back(split_tasks_.size());
        for (int s = 0; s < num_segments(tile); ++s)
            for (int h = 0; h < kv_heads; ++h) split_tasks_.push_back({t, s, h});
        for (int h = 0; h < kv_heads; ++h) remaining_[static_cast<size_t>(t * kv_heads + h)] = num_segments(tile);
    }
    size_t bytes = split_tasks_.size() * partial_bytes_ + 64;
    if (partials_.size() < bytes) partials_.resize(bytes);
}

// The tile's queries of KV heads [begin, end), as contiguous matrices.
template <typename S>
void Attention<S>::gather_queries(const Tile& tile, int begin, int end, const Inputs& in, Workspace& workspace) const {
    int group = heads_.group_size();
    size_t width = static_cast<size_t>(group * heads_.head_dim);
    for (int h = begin; h < end; ++h)
        for (int r = 0; r < tile.num_rows; ++r)
            std::memcpy(workspace.queries + static_cast<size_t>((h * tile.num_rows + r)) * width,
                        in.q + (tile.first_row + r) * in.q_stride + static_cast<ptrdiff_t>(width) * h,
                        width * sizeof(S));
    for (int i = 0; i < tile.num_rows * group; ++i) workspace.kv_lens[i] = tile.keys_of(i / group);
}

template <typename S>
void Attention<S>::attend_segment(const Tile& tile, KVHeads kv_heads, int segment, const Inputs& in,
                                  const Workspace& workspace, const int64_t* slots, KVPrefetch next,
                                  PartialAttention out) const {
    int num_queries = tile.num_rows * heads_.group_size();
    ScoreRules rules = in.rules;
    if (rules.window) rules.window += tile.ahead;  // the kernels count a window from the last key that is seen
    layout_.attend_segment(
        {workspace.queries + ptrdiff_t{kv_heads.first} * num_queries * heads_.head_dim, workspace.kv_lens, rules,
         min_key_, kv_heads.count, num_queries, in.cache.keys + head_offset(kv_heads.first),
         in.cache.values + head_offset(kv_heads.first), slots, in.cache.slot_bytes(), segment * kSegmentKeys,
         segment_keys(tile, segment), heads_.head_dim, scale_, next},
        out, workspace.scratch);
}

template <typename S>
void Attention<S>::write_output(const Tile& tile, int kv_head, PartialAttention state, const Inputs& in,
                                Workspace& workspace) const {
    int group = heads_.group_size();
    if (in.rules.sinks)
        table_.add_sinks(state, in.rules.sinks + kv_head * group, group, tile.num_rows * group, heads_.head_dim);
    ptrdiff_t width = ptrdiff_t{group} * heads_.head_dim, row = ptrdiff_t{heads_.num_heads} * heads_.head_dim;
    S* out = in.out + tile.first_row * row + kv_head * width;
    if (tile.num_rows == 1) return table_.normalize(state, group, heads_.head_dim, out);
    table_.normalize(state, tile.num_rows * group, heads_.head_dim, workspace.outputs);
    for (int r = 0; r < tile.num_rows; ++r)
        std::memcpy(out + r * row, workspace.outputs + r * width, static_cast<size_t>(width) * sizeof(S));
}

// All heads of a segment, then the next segment: the cache is read front to back.
template <typename S>
void Attention<S>::run_tile(const Tile& tile, const Tile* next_tile, const Inputs& in, Workspace& workspace) const {
    int num_queries = tile.num_rows * heads_.group_size(), kv_heads = heads_.num_kv_heads;
    int begin = first_segment(tile, in.rules.window), end = num_segments(tile);
    gather_queries(tile, 0, kv_heads, in, workspace);
    auto state = [&](int head) {
        return partial_at(workspace.states + partial_bytes_ * static_cast<size_t>(head), num_queries);
    };
    for (int h = 0; h < kv_heads; ++h) std::fill_n(state(h).row_sum, num_queries, 0.0f);
    int64_t *slots = workspace.slots[0], *next_slots = workspace.slots[1];
    in.plan.find_slots(tile, begin * kSegmentKeys, segment_keys(tile, begin), slots);
    for (int s = begin; s < end; ++s, std::swap(slots, next_slots)) {
        const Tile* follower = s + 1 < end ? &tile : next_tile;
        int next_segment = s + 1 < end ? s + 1 : next_tile ? first_segment(*next_tile, in.rules.window) : 0;
        int next_keys = follower ? segment_keys(*follower, next_segment) : 0;
        if (follower) in.plan.find_slots(*follower, next_segment * kSegmentKeys, next_keys, next_slots);
        for (int h = 0, count; h < kv_heads; h += count) {
            count = num_queries <= kFewQueries ? std::min(layout_.max_heads, kv_heads - h) : 1;
            KVPrefetch next{in.cache.keys, in.cache.values, next_slots, next_keys};
            if (h + count < kv_heads)
                next = {in.cache.keys + head_offset(h + count), in.cache.values + head_offset(h + count), slots,
                        segment_keys(tile, s)};
            PartialAttention partial = partial_at(workspace.partial, count * num_queries);
            attend_segment(tile, {h, count}, s, in, workspace, slots, next, partial);
            for (int i = 0; i < count; ++i)
                table_.merge_segments(state(h + i), partial.from(i * num_queries, heads_.head_dim), num_queries,
                                      heads_.head_dim);
        }
    }
    for (int h = 0; h < kv_heads; ++h) write_output(tile, h, state(h), in, workspace);
}

// The thread that finishes the last segment of a tile and head merges all of them, first to last.
template <typename S>
void Attention<S>::run_split(const SplitTask& task, const SplitTask* next_task, const Inputs& in,
                             Workspace& workspace) {
    const std::vector<Tile>& tiles = in.plan.tiles();
    const Tile& tile = tiles[static_cast<size_t>(task.tile)];
    int num_queries = tile.num_rows * heads_.group_size(), kv_heads = heads_.num_kv_heads;
    int begin = first_segment(tile, in.rules.window), end = num_segments(tile);
    char* partials = align_to_line(partials_);
    auto partial = [&](int segment) {
        size_t index =
            first_task_[static_cast<size_t>(task.tile)] + static_cast<size_t>(segment * kv_heads + task.kv_head);
        return partial_at(partials + partial_bytes_ * index, num_queries);
    };
    if (task.segment >= begin) {
        gather_queries(tile, task.kv_head, task.kv_head + 1, in, workspace);
        in.plan.find_slots(tile, task.segment * kSegmentKeys, segment_keys(tile, task.segment), workspace.slots[0]);
        KVPrefetch next{nullptr, nullptr, workspace.slots[1], 0};
        if (next_task) {
            const Tile& next_tile = tiles[static_cast<size_t>(next_task->tile)];
            next.count = segment_keys(next_tile, next_task->segment);
            in.plan.find_slots(next_tile, next_task->segment * kSegmentKeys, next.count, workspace.slots[1]);
            next.keys = in.cache.keys + head_offset(next_task->kv_head);
            next.values = in.cache.values + head_offset(next_task->kv_head);
        }
        attend_segment(tile, {task.kv_head, 1}, task.segment, in, workspace, workspace.slots[0], next,
                       partial(task.segment));
    }
    std::atomic<int>& remaining = remaining_[static_cast<size_t>(task.tile * kv_heads + task.kv_head)];
    if (remaining.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    remaining.store(end, std::memory_order_relaxed);  // for the next layer
    PartialAttention state = partial_at(workspace.states, num_queries);
    std::fill_n(state.row_sum, num_queries, 0.0f);
    for (int s = begin; s < end; ++s) table_.merge_segments(state, partial(s), num_queries, heads_.head_dim);
    write_output(tile, task.kv_head, state, in, workspace);
}

template <typename S>
void Attention<S>::prefetch_first(const ThreadPool::Team& team, const AttentionPlan& plan, KVCacheLayer cache,
                                  int window) const {
    size_t num_tasks = is_split_ ? split_tasks_.size() : plan.tiles().size();
    if (!num_tasks) return;  // all rows are padding
    size_t task = static_cast<size_t>(team.first_task(static_cast<int>(num_tasks)));
    const Tile& tile = is_split_ ? plan.tiles()[static_cast<size_t>(split_tasks_[task].tile)]
                                 : *tile_of_task(plan, static_cast<int>(task));
    int kv_head = is_split_ ? split_tasks_[task].kv_head : 0;
    int segment = is_split_ ? split_tasks_[task].segment : first_segment(tile, window);
    int64_t slots[kSegmentKeys];
    int count = segment_keys(tile, segment);
    plan.find_slots(tile, segment * kSegmentKeys, count, slots);
    ptrdiff_t page_bytes = layout_.page_slots * cache.head_bytes;
    for (int k = 0; k < count; k += layout_.page_slots) {
        ptrdiff_t page = head_offset(kv_head) + slots[k] / layout_.page_slots * layout_.page_slots * cache.slot_bytes();
        for (ptrdiff_t i = 0; i < page_bytes; i += 64) __builtin_prefetch(cache.keys + page + i, 0, 2);
        for (ptrdiff_t i = 0; i < page_bytes; i += 64) __builtin_prefetch(cache.values + page + i, 0, 2);
    }
}

template <typename S>
void Attention<S>::find_pages(const ThreadPool::Team& team, const AttentionPlan& plan) {
    std::vector<ptrdiff_t>& pages = pages_[static_cast<size_t>(team.thread_index())];
    int num_tiles = static_cast<int>(plan.tiles().size());
    int rows = plan.num_rows();
    if (is_split_ || layout_.page_slots == 1 || rows < kMinRowsAhead || rows > kMaxTileRowsAhead * num_tiles) return;
    ptrdiff_t page_bytes = layout_.page_slots * heads_.num_kv_heads * layout_.head_bytes(heads_.head_dim);
    size_t most = static_cast<size_t>(kMaxBytesAhead / team.size() / (2 * page_bytes));
    int64_t slots[kSegmentKeys];
    for (int task = team.first_task(num_tiles); task < num_tiles && pages.size() < most; ++task) {
        const Tile& tile = *tile_of_task(plan, task);
        for (int segment = 0; segment < num_segments(tile); ++segment) {
            int count = segment_keys(tile, segment);
            plan.find_slots(tile, segment * kSegmentKeys, count, slots);
            for (int k = 0; k < count; k += layout_.page_slots)
                pages.push_back(slots[k] / layout_.page_slots * page_bytes);
        }
    }
}

template <typename S>
PagesAhead Attention<S>::pages_ahead(int thread, KVCacheLayer cache, int window) const {
    const std::vector<ptrdiff_t>& pages = pages_[static_cast<size_t>(thread)];
    if (pages.empty() || window || !cache.keys) return {};
    int lines = static_cast<int>(layout_.page_slots * cache.slot_bytes() / 64);
    return {cache.keys, cache.values, pages.data(), static_cast<int>(pages.size()), lines};
}

template <typename S>
void Attention<S>::run(ThreadPool::Team& team, const AttentionPlan& plan, const S* q, ptrdiff_t q_stride,
                       KVCacheLayer cache, ScoreRules rules, S* out) {
    Inputs in{plan, q, q_stride, cache, rules, out};
    Workspace& workspace = workspaces_[static_cast<size_t>(team.thread_index())];
    if (is_split_)
        return team.parallel_for(static_cast<int>(split_tasks_.size()), [&](int i) {
            size_t next = static_cast<size_t>(i) + 1;
            run_split(split_tasks_[static_cast<size_t>(i)], next < split_tasks_.size() ? &split_tasks_[next] : nullptr,
                      in, workspace);
        });
    team.parallel_for(static_cast<int>(plan.tiles().size()), [&](int i) {
        const Tile* tile = tile_of_task(plan, i);
        run_tile(*tile, tile == plan.tiles().data() ? nullptr : tile - 1, in, workspace);
    });
}

template class Attention<Bf16>;
template class Attention<float>;

}  // namespace specserve
