// Which rows of a batch see which keys, as tiles: consecutive rows of one request along one path.
//
// Row i of a tile sees `seen + i` keys. They lie in the request's blocks up to key `base`; from there on, for guesses
// in a branch of a draft tree, at slots of the branch's own. How rows are cut into tiles never reaches their bits.
#pragma once

#include <cstdint>
#include <vector>

namespace specserve {

struct Tile {
    int row, rows, seen;
    int blocks;  // where the request's block ids begin in Plan::block_ids
    int base;    // keys that lie in blocks; all of them outside branches
    int tail;    // where the slots of the others begin in Plan::tail_slots

    int keys() const { return seen + rows - 1; }
};

class Plan {
   public:
    // rows_per_tile: at least 1
    Plan(int block_size, int rows_per_tile) : block_size_(block_size), rows_per_tile_(rows_per_tile) {}

    // A request's rows: `length` of them from token `start` on, the first `known` committed. parents: of its guesses,
    // -1 for the root; empty where each follows the one before. Returns false where a number is out of range.
    bool add(int start, int length, int known, const std::vector<int32_t>& blocks, const std::vector<int32_t>& parents);

    // Slots of the tile's keys [first, first + count).
    void slots(const Tile& tile, int first, int count, int64_t* to) const;

    const std::vector<Tile>& tiles() const { return tiles_; }
    int block_size() const { return block_size_; }
    int num_rows() const { return num_rows_; }
    int rows_per_tile() const { return rows_per_tile_; }
    int64_t highest_slot() const { return highest_slot_; }

   private:
    void cut(int seen, int rows, int blocks, int base, int tail);

    int block_size_, rows_per_tile_;
    int num_rows_ = 0;
    int64_t highest_slot_ = -1;
    std::vector<Tile> tiles_;
    std::vector<int32_t> block_ids_;
    std::vector<int64_t> tail_slots_;
};

}  // namespace specserve
