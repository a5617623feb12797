// Which keys each row of a batch sees, as tiles: consecutive rows of one request along one path.
//
// Row i of a tile sees the first `kv_len + i` keys of its path, or all rows see as many. Keys below `branch_start` are
// in the request's blocks; the others, on a branch of a draft tree, have a list of slots. How rows are split into tiles
// does not change their bits.
#pragma once

#include <cstdint>
#include <vector>

namespace specserve {

constexpr int64_t kNoSlot = -1;  // of a row whose key and value are not stored

struct Tile {
    int first_row, num_rows;
    int kv_len;               // of the first row
    int block_offset;         // of the request's block ids in AttentionPlan::block_ids_
    int branch_start;         // INT32_MAX outside branches
    int branch_slots_offset;  // of key `branch_start` in AttentionPlan::branch_slots_
    int growth = 1;           // how many keys more each row sees than the one before it: 1 or 0
    int ahead = 0;            // how many of the keys that the first row sees are behind its own

    int keys_of(int row) const { return kv_len + row * growth; }  // row: of the tile
    int num_keys() const { return keys_of(num_rows - 1); }
};

class AttentionPlan {
   public:
    // rows_per_tile: at least 1
    AttentionPlan(int block_size, int rows_per_tile) : block_size_(block_size), rows_per_tile_(rows_per_tile) {}

    // A request's rows: `length` tokens from position `start`, the first `num_committed` of them committed, the others
    // draft tokens. parents: of the draft tokens, as indices among them, -1 for the root; empty for a chain. The rows'
    // draft tokens begin with `first_node`; those before it are in the cache. Returns false if a number is out of
    // range.
    bool add(int start, int length, int num_committed, const std::vector<int32_t>& block_ids,
             const std::vector<int32_t>& parents, int first_node);

    // A request's rows: `length` tokens from position `start`, each of which sees all of them. one_by_one: each is a
    // tile, as layers with windows need. Returns false if a number is out of range.
    bool add_together(int start, int length, const std::vector<int32_t>& block_ids, bool one_by_one = false);

    // Rows behind the others that belong to no request and attend to nothing. Their outputs are undefined.
    void pad(int rows) { num_rows_ += rows; }

    // One row of each of these rows' requests: the position behind it. Each request here has one row, on no branch, and
    // its blocks have room (`has_room`).
    AttentionPlan next_positions(const std::vector<int>& rows) const;

    // The same of some rows alone, ascending, none of them padding.
    AttentionPlan of_rows(const std::vector<int64_t>& rows) const;

    // Whether this plan has one row of each request, on no branch, and the blocks of request i have room for `more[i]`
    // positions behind it.
    bool has_room(const std::vector<int>& more) const;

    // The slots of the tile's keys [first, first + count).
    void find_slots(const Tile& tile, int first, int count, int64_t* slots) const;

    // slots: becomes [rows][reach], the slots of the tokens before each row on its path, the nearest first; kNoSlot
    // where there is none.
    void find_preceding(int reach, std::vector<int64_t>& slots) const;

    const std::vector<Tile>& tiles() const { return tiles_; }
    int block_size() const { return block_size_; }
    int num_rows() const { return num_rows_; }
    int rows_per_tile() const { return rows_per_tile_; }
    int64_t max_slot() const { return max_slot_; }

   private:
    int add_blocks(const std::vector<int32_t>& block_ids);
    void add_tiles(int kv_len, int num_rows, int block_offset, int branch_start, int branch_slots_offset);
    void add_together_tiles(int kv_len, int num_rows, int block_offset, int ahead, int rows_per_tile);

    int block_size_, rows_per_tile_;
    int num_rows_ = 0;
    int64_t max_slot_ = -1;
    std::vector<Tile> tiles_;
    std::vector<int32_t> block_ids_;
    std::vector<int64_t> branch_slots_;
};

}  // namespace specserve
