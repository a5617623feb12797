#include "ops/attention_plan.hpp"

#include <algorithm>
#include <cstddef>

namespace specserve {

namespace {
bool has_negative(const std::vector<int32_t>& blocks) {
    return std::any_of(blocks.begin(), blocks.end(), [](int32_t block) { return block < 0; });
}
}  // namespace

bool AttentionPlan::add(int start, int length, int num_committed, const std::vector<int32_t>& block_ids,
                        const std::vector<int32_t>& parents, int first_node) {
    if (start < 0 || num_committed < 0 || length < std::max(num_committed, 1) || first_node < 0) return false;
    if (first_node && (num_committed || parents.empty())) return false;
    int num_drafts = first_node + length - num_committed, num_parents = static_cast<int>(parents.size());
    if (num_parents && num_parents != num_drafts) return false;
    for (int node = 0; node < num_parents; ++node)
        if (parents[node] < -1 || parents[node] >= node) return false;
    if (static_cast<int64_t>(block_ids.size()) * block_size_ < int64_t{start} + first_node + length) return false;
    if (has_negative(block_ids)) return false;
    int block_offset = add_blocks(block_ids);

    // The draft tokens that continue the committed ones as a chain share their tiles.
    int chain = parents.empty() ? num_drafts : 0;
    while (chain < num_parents && parents[chain] == chain - 1) ++chain;
    chain = std::max(chain, first_node);
    add_tiles(start + first_node + 1, num_committed + chain - first_node, block_offset, INT32_MAX, 0);

    // The others form branches: runs of draft tokens that follow each other as parent and child.
    int first_draft = start + num_committed;
    for (int node = chain, end; node < num_drafts; node = end) {
        for (end = node + 1; end < num_drafts && parents[end] == end - 1; ++end) {}
        std::vector<int> path;
        for (int ancestor = end - 1; ancestor >= 0; ancestor = parents[ancestor]) path.push_back(ancestor);
        int branch_slots_offset = static_cast<int>(branch_slots_.size());
        for (auto ancestor = path.rbegin(); ancestor != path.rend(); ++ancestor) {
            int position = first_draft + *ancestor;
            branch_slots_.push_back(int64_t{block_ids[position / block_size_]} * block_size_ + position % block_size_);
        }
        int kv_len = first_draft + static_cast<int>(path.size()) - (end - 1 - node);
        add_tiles(kv_len, end - node, block_offset, first_draft, branch_slots_offset);
    }
    return true;
}

bool AttentionPlan::add_together(int start, int length, const std::vector<int32_t>& block_ids, bool one_by_one) {
    if (start < 0 || length < 1 || has_negative(block_ids)) return false;
    if (static_cast<int64_t>(block_ids.size()) * block_size_ < int64_t{start} + length) return false;
    add_together_tiles(start + length, length, add_blocks(block_ids), length - 1, one_by_one ? 1 : rows_per_tile_);
    return true;
}

// Rows that see the first kv_len keys, the first of them `ahead` keys behind its own.
void AttentionPlan::add_together_tiles(int kv_len, int num_rows, int block_offset, int ahead, int rows_per_tile) {
    for (int row = 0; row < num_rows; row += rows_per_tile)
        tiles_.push_back({num_rows_ + row, std::min(rows_per_tile, num_rows - row), kv_len, block_offset, INT32_MAX, 0,
                          0, ahead - row});
    num_rows_ += num_rows;
}

// Returns where they begin.
int AttentionPlan::add_blocks(const std::vector<int32_t>& block_ids) {
    int offset = static_cast<int>(block_ids_.size());
    for (int32_t block : block_ids) max_slot_ = std::max(max_slot_, (int64_t{block} + 1) * block_size_ - 1);
    block_ids_.insert(block_ids_.end(), block_ids.begin(), block_ids.end());
    return offset;
}

void AttentionPlan::add_tiles(int kv_len, int num_rows, int block_offset, int branch_start, int branch_slots_offset) {
    for (int row = 0; row < num_rows; row += rows_per_tile_)
        tiles_.push_back({num_rows_ + row, std::min(rows_per_tile_, num_rows - row), kv_len + row, block_offset,
                          branch_start, branch_slots_offset});
    num_rows_ += num_rows;
}

AttentionPlan AttentionPlan::of_rows(const std::vector<int64_t>& rows) const {
    AttentionPlan some(block_size_, rows_per_tile_);
    some.block_ids_ = block_ids_;
    some.branch_slots_ = branch_slots_;
    some.max_slot_ = max_slot_;
    auto tile = tiles_.begin();
    for (size_t i = 0, end; i < rows.size(); i = end) {
        while (rows[i] >= tile->first_row + tile->num_rows) ++tile;
        for (end = i + 1; end < rows.size() && rows[end] == rows[end - 1] + 1; ++end)
            if (rows[end] >= tile->first_row + tile->num_rows) break;
        int row = static_cast<int>(rows[i]) - tile->first_row, count = static_cast<int>(end - i);
        if (tile->growth)
            some.add_tiles(tile->keys_of(row), count, tile->block_offset, tile->branch_start,
                           tile->branch_slots_offset);
        else
            some.add_together_tiles(tile->kv_len, count, tile->block_offset, tile->ahead - row, rows_per_tile_);
    }
    return some;
}

AttentionPlan AttentionPlan::next_positions(const std::vector<int>& rows) const {
    AttentionPlan next(block_size_, rows_per_tile_);
    next.block_ids_ = block_ids_;
    next.max_slot_ = max_slot_;
    for (int row : rows) {
        const Tile& tile = tiles_[static_cast<size_t>(row)];
        next.add_tiles(tile.kv_len + 1, 1, tile.block_offset, INT32_MAX, 0);
    }
    return next;
}

bool AttentionPlan::has_room(const std::vector<int>& more) const {
    if (tiles_.size() != more.size()) return false;
    for (size_t i = 0; i < tiles_.size(); ++i) {
        const Tile& tile = tiles_[i];
        size_t end = i + 1 < tiles_.size() ? static_cast<size_t>(tiles_[i + 1].block_offset) : block_ids_.size();
        int64_t room = (static_cast<int64_t>(end) - tile.block_offset) * block_size_;
        if (tile.num_rows != 1 || tile.branch_start != INT32_MAX || tile.kv_len + int64_t{more[i]} > room) return false;
    }
    return true;
}

void AttentionPlan::find_slots(const Tile& tile, int first, int count, int64_t* slots) const {
    const int32_t* block_ids = block_ids_.data() + tile.block_offset;
    int num_in_blocks = std::clamp(tile.branch_start - first, 0, count);
    for (int i = 0; i < num_in_blocks;) {
        int key = first + i, block_slot = key % block_size_;
        int run = std::min(block_size_ - block_slot, num_in_blocks - i);
        int64_t slot = int64_t{block_ids[key / block_size_]} * block_size_ + block_slot;
        for (int j = 0; j < run; ++j) slots[i + j] = slot + j;
        i += run;
    }
    for (int i = num_in_blocks; i < count; ++i)
        slots[i] = branch_slots_[static_cast<size_t>(tile.branch_slots_offset + first + i - tile.branch_start)];
}

void AttentionPlan::find_preceding(int reach, std::vector<int64_t>& slots) const {
    slots.assign(static_cast<size_t>(num_rows_) * static_cast<size_t>(reach), kNoSlot);
    std::vector<int64_t> keys(static_cast<size_t>(rows_per_tile_) + static_cast<size_t>(reach));
    for (const Tile& tile : tiles_) {
        int own = tile.kv_len - 1, first = std::max(0, own - reach);
        find_slots(tile, first, tile.num_keys() - 1 - first, keys.data());
        int64_t* to = slots.data() + std::ptrdiff_t{tile.first_row} * reach;
        for (int row = 0; row < tile.num_rows; ++row, to += reach) {
            int key = tile.keys_of(row) - 1;
            for (int d = 1; d <= std::min(reach, key); ++d) to[d - 1] = keys[static_cast<size_t>(key - d - first)];
        }
    }
}

}  // namespace specserve
