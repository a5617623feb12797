// Grows the draft of one request, best node first, from the candidates at its nodes.
#pragma once

#include <cstdint>
#include <vector>

#include "drafting/alignment.hpp"
#include "drafting/candidates.hpp"
#include "estimation/predictor.hpp"

namespace ngram {

// Which nodes come first, and so make the draft when the limit is reached.
enum class Shape : uint8_t {
    kLearned,    // the likeliest by what was learned
    kFrequency,  // the most frequent: shares of their contexts, multiplied along the path
    kRecency,    // level by level, as many children as the length of the match allows, the most recent first
};

struct Limits {
    Shape shape;
    Window window;
    uint32_t min_breadth;  // kRecency: children after a match of max_match tokens; after one of min_match per_token
    uint32_t max_depth;
    double min_survival;  // no node below this
};

struct DraftNode {
    Token token;
    int32_t parent;  // -1: the newest committed token
    double survival;
};

// Where a request stands.
struct Position {
    const Source* sources;
    uint32_t num_sources;
    const Place* places;  // one per source
    const Trace* trace;
    const Text* text;
};

// Keeps its working memory from draft to draft.
class TreeGrower {
   public:
    // At most `limit` nodes, depth first, so parents come before children and the best path comes first.
    void grow(const Position& position, const Predictor& predictor, const Limits& limits, uint32_t limit,
              std::vector<DraftNode>& draft);

   private:
    struct Node {
        uint32_t parent;  // in nodes_
        Token token;
        uint32_t depth;
        double survival, score;
        uint32_t known;  // bit s: its place in source s is known
        Trace trace;
    };
    struct Entry {
        double score, survival;
        uint32_t order;
        uint32_t parent;
        Token token;
        uint32_t source;
        Place next;
        bool operator<(const Entry& other) const {
            return score != other.score ? score < other.score : order > other.order;
        }
    };

    uint32_t add(const Entry& entry);
    void expand(uint32_t node, const Predictor& predictor, const Limits& limits);
    void order_by_branch(std::vector<DraftNode>& draft);
    Place place(uint32_t node, uint32_t source);

    Position position_{};
    std::vector<Node> nodes_;    // nodes_[0] is the root; draft node i is nodes_[i + 1]
    std::vector<Place> places_;  // num_sources per node; of one that is not known, only the length, which is a bound
    std::vector<Entry> heap_;
    std::vector<DraftNode> found_;  // the draft, best first
    uint32_t order_ = 0;

    struct Waiting {
        int32_t node, parent;
    };
    std::vector<int32_t> first_child_, next_sibling_;
    std::vector<Waiting> stack_;
};

}  // namespace ngram
