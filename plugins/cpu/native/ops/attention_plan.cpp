#include "ops/attention_plan.hpp"

#include <algorithm>

namespace specserve {

bool Plan::add(int start, int length, int known, const std::vector<int32_t>& blocks,
               const std::vector<int32_t>& parents) {
    if (start < 0 || known < 0 || length < std::max(known, 1)) return false;
    int guesses = length - known, num_parents = static_cast<int>(parents.size());
    if (num_parents && num_parents != guesses) return false;
    for (int node = 0; node < num_parents; ++node)
        if (parents[node] < -1 || parents[node] >= node) return false;
    if (static_cast<int64_t>(blocks.size()) * block_size_ < int64_t{start} + length) return false;
    for (int32_t block : blocks)
        if (block < 0) return false;
    int first_block = static_cast<int>(block_ids_.size());
    for (int32_t block : blocks) highest_slot_ = std::max(highest_slot_, (int64_t{block} + 1) * block_size_ - 1);
    block_ids_.insert(block_ids_.end(), blocks.begin(), blocks.end());

    int leading = parents.empty() ? guesses : 0;
    while (leading < num_parents && parents[leading] == leading - 1) ++leading;
    cut(start + 1, known + leading, first_block, INT32_MAX, 0);

    // The guesses that follow each other as parent and child are a branch and share their path's slots.
    int base = start + known;
    for (int node = leading, end; node < guesses; node = end) {
        for (end = node + 1; end < guesses && parents[end] == end - 1; ++end) {}
        std::vector<int> path;
        for (int at = end - 1; at >= 0; at = parents[at]) path.push_back(at);
        int tail = static_cast<int>(tail_slots_.size());
        for (auto at = path.rbegin(); at != path.rend(); ++at) {
            int place = base + *at;
            tail_slots_.push_back(int64_t{blocks[place / block_size_]} * block_size_ + place % block_size_);
        }
        cut(base + static_cast<int>(path.size()) - (end - 1 - node), end - node, first_block, base, tail);
    }
    return true;
}

void Plan::cut(int seen, int rows, int blocks, int base, int tail) {
    for (int done = 0; done < rows; done += rows_per_tile_) {
        int taken = std::min(rows_per_tile_, rows - done);
        tiles_.push_back({num_rows_ + done, taken, seen + done, blocks, base, tail});
    }
    num_rows_ += rows;
}

void Plan::slots(const Tile& tile, int first, int count, int64_t* to) const {
    const int32_t* blocks = block_ids_.data() + tile.blocks;
    int in_blocks = std::clamp(tile.base - first, 0, count);
    for (int i = 0; i < in_blocks;) {
        int key = first + i, inside = key % block_size_;
        int run = std::min(block_size_ - inside, in_blocks - i);
        int64_t slot = int64_t{blocks[key / block_size_]} * block_size_ + inside;
        for (int j = 0; j < run; ++j) to[i + j] = slot + j;
        i += run;
    }
    for (int i = in_blocks; i < count; ++i) to[i] = tail_slots_[static_cast<size_t>(tile.tail + first + i - tile.base)];
}

}  // namespace specserve
