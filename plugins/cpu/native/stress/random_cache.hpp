// A cache of one layer whose slots all hold random keys and values.
#pragma once

#include <vector>

#include "ops/attention_workspace.hpp"
#include "stress/stress.hpp"

namespace specserve {

// One of the layouts of the table: in panels or by slot, with or without scales.
template <typename S>
const KVLayout<S>& random_layout(const KernelTable<S>& table, Random& random, bool in_panels) {
    if (between(random, 0, 1)) return in_panels ? table.in_panels_int8 : table.by_slot_int8;
    return in_panels ? table.in_panels : table.by_slot;
}

template <typename S>
struct RandomCache {
    RandomCache(Random& random, const KVLayout<S>& layout, HeadShape heads, int num_slots)
        : shape(heads), head_bytes(layout.head_bytes(heads.head_dim)),
          bytes(static_cast<size_t>(2 * num_slots * heads.num_kv_heads) * static_cast<size_t>(head_bytes)) {
        for (int slot = 0; slot < num_slots; ++slot)
            for (int head = 0; head < heads.num_kv_heads; ++head) {
                std::vector<S> numbers = random_numbers<S>(random, static_cast<size_t>(2 * heads.head_dim));
                layout.store_kv(numbers.data(), numbers.data() + heads.head_dim, layer(), head, slot, 1e15f);
            }
    }

    KVCacheLayer layer() {
        return {bytes.data(), bytes.data() + bytes.size() / 2, shape.num_kv_heads, shape.head_dim, head_bytes};
    }
    bool operator==(const RandomCache& other) const { return bytes == other.bytes; }

    HeadShape shape;
    ptrdiff_t head_bytes;
    std::vector<char> bytes;
};

}  // namespace specserve
