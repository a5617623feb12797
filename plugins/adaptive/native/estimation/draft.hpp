// What the planner reads of a draft: a tree of tokens, parents before children.
#pragma once

#include <cstdint>
#include <vector>

namespace adaptive {

constexpr int32_t kRoot = -1;

struct Draft {
    std::vector<int64_t> tokens;  // empty where only the shape was read
    std::vector<int32_t> parents;
    // P(node and its ancestors are accepted) as the drafter states it; empty where it states none.
    std::vector<double> stated;
    bool is_chain = true;
    int source = 0;  // a number for its drafter and the class of its request's temperature

    int32_t size() const { return static_cast<int32_t>(parents.size()); }
};

}  // namespace adaptive
