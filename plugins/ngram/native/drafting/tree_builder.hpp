// Builds the draft tree of one request by best-first search over the candidates of its nodes.
#pragma once

#include <cstdint>
#include <vector>

#include "drafting/alignment.hpp"
#include "drafting/candidates.hpp"
#include "estimation/predictor.hpp"

namespace ngram {

// The order of the search, and so which nodes are in the draft when its limit is reached.
enum class MatchType : uint8_t {
    kLearned,  // the highest survival estimate first
    kProb,     // the highest relative frequency first, multiplied along the path
    kBfs,      // level by level, the most recent first; the longer the match, the fewer children
};

// How the automata that it searches rank their transitions.
inline Ranking ranking_of(MatchType match_type) {
    switch (match_type) {
        case MatchType::kProb: return Ranking::kFrequency;
        case MatchType::kBfs: return Ranking::kRecency;
        default: return Ranking::kUpdateExclusion;
    }
}

struct DraftOptions {
    MatchType match_type;
    CandidateLimits candidates;
    uint32_t min_breadth;  // kBfs: children after a match of max_match tokens; per_token after one of min_match
    uint32_t max_depth;
    double min_survival;  // nodes with less are not in the draft
};

struct DraftNode {
    Token token;
    int32_t parent;   // index in the draft; -1: the newest committed token
    double survival;  // P(the target model accepts the node and all its ancestors)
};

// What a draft continues.
struct Position {
    const Source* sources;
    uint32_t num_sources;
    const Match* matches;  // one per source
    const Alignment* alignment;
    const Text* text;  // of the request, without what is only expected to come
    Token newest;      // the token before the draft; -1: none
};

// Bounds of the search.
constexpr double kMinMass = 1e-4;           // no more candidates once the earlier ones left less probability
constexpr double kPromisingFactor = 10;     // a node is promising from this many times min_survival on
constexpr uint32_t kMaxMisses = 4;          // candidates below min_survival in a row that end the search there; else 1
constexpr uint32_t kLearnedPerContext = 4;  // kLearned: continuations of one context that are considered
constexpr double kEscapeProbability = 0.5;  // kProb: of each step to a shorter context

// Reuses its buffers from draft to draft.
class TreeBuilder {
   public:
    // At most `limit` nodes in depth-first order: parents come before children, the best path comes first.
    void build(const Position& position, const Predictor& predictor, const DraftOptions& options, uint32_t limit,
               std::vector<DraftNode>& draft);

   private:
    struct Node {
        uint32_t parent;  // in nodes_
        Token token;
        uint32_t depth;
        double survival, score;
        uint32_t resolved;  // bit s: its match in source s is known
        Alignment alignment;
    };
    struct HeapEntry {
        double score, survival;
        uint32_t order;  // of insertion; the earlier one is better at equal scores
        uint32_t parent;
        Token token;
        uint32_t source;
        Match next;
        bool operator<(const HeapEntry& other) const {
            return score != other.score ? score < other.score : order > other.order;
        }
    };

    uint32_t add_node(const HeapEntry& entry);
    void expand(uint32_t node, const Predictor& predictor, const DraftOptions& options);
    void push(uint32_t node, const Candidate& candidate, double score, double survival);
    void order_depth_first(std::vector<DraftNode>& draft);
    Match match(uint32_t node, uint32_t source);

    Position position_{};
    std::vector<Node> nodes_;     // nodes_[0] is the root; found_[i] is nodes_[i + 1]
    std::vector<Match> matches_;  // num_sources per node; one that is not resolved has a bound of its length only
    std::vector<HeapEntry> heap_;
    std::vector<DraftNode> found_;  // the draft in the order of the search
    uint32_t num_pushed_ = 0;

    struct Subtree {
        int32_t root, parent;
    };
    std::vector<int32_t> first_child_, next_sibling_;
    std::vector<Subtree> stack_;
};

}  // namespace ngram
