#include "drafting/tree_builder.hpp"

#include <algorithm>

namespace ngram {

namespace {

// Children of a node: per_token after a match of min_match tokens, down to min_breadth after one of max_match.
uint32_t breadth_for(uint32_t match_length, const DraftOptions& options) {
    const CandidateLimits& limits = options.candidates;
    uint32_t range = limits.max_match - limits.min_match, spread = limits.per_token - options.min_breadth;
    if (range == 0) return options.min_breadth;
    return limits.per_token - spread * (std::min(match_length, limits.max_match) - limits.min_match) / range;
}

// Scores the candidates of one node by the match type. They come from the longest context down.
class Scorer {
   public:
    Scorer(const DraftOptions& options, double node_score, uint32_t depth)
        : options_(options), mass_(node_score), depth_(depth), breadth_(options.candidates.per_token) {}

    double score(const Features& f, double survival) {
        const bool is_first = num_scored_++ == 0;
        const bool escapes = !is_first && f.match_length != match_length_;  // to a shorter context
        match_length_ = f.match_length;
        if (options_.match_type == MatchType::kBfs) {
            if (is_first) breadth_ = breadth_for(f.match_length, options_);
            return -static_cast<double>(depth_);
        }
        if (options_.match_type == MatchType::kLearned) return survival;
        if (escapes) mass_ *= kEscapeProbability;
        return mass_ * f.count / f.total;
    }

    bool is_full() const { return num_scored_ >= breadth_; }

   private:
    const DraftOptions& options_;
    double mass_;  // kProb: what shorter contexts share
    uint32_t depth_, breadth_, num_scored_ = 0, match_length_ = 0;
};

}  // namespace

void TreeBuilder::build(const Position& position, const Predictor& predictor, const DraftOptions& options,
                        uint32_t limit, std::vector<DraftNode>& draft) {
    position_ = position;
    num_pushed_ = 0;
    heap_.clear();
    found_.clear();
    nodes_.clear();
    matches_.assign(position.matches, position.matches + position.num_sources);
    nodes_.push_back({0, position.newest, 0, 1.0, 1.0, (1u << position.num_sources) - 1, *position.alignment});
    if (limit > 0) expand(0, predictor, options);
    while (!heap_.empty() && found_.size() < limit) {
        std::pop_heap(heap_.begin(), heap_.end());
        HeapEntry best = heap_.back();
        heap_.pop_back();
        found_.push_back({best.token, static_cast<int32_t>(best.parent) - 1, best.survival});
        uint32_t node = add_node(best);
        if (nodes_[node].depth < options.max_depth && found_.size() < limit) expand(node, predictor, options);
    }
    order_depth_first(draft);
}

// The child that was found first comes first. A subtree is contiguous, so attention computes it in one go.
void TreeBuilder::order_depth_first(std::vector<DraftNode>& draft) {
    size_t size = found_.size();
    first_child_.assign(size + 1, -1);
    next_sibling_.assign(size, -1);
    for (size_t i = size; i-- > 0;) {  // backwards: each child is put before its later siblings
        int32_t& head = first_child_[static_cast<size_t>(found_[i].parent + 1)];
        next_sibling_[i] = head;
        head = static_cast<int32_t>(i);
    }
    draft.clear();
    draft.reserve(size);
    stack_.clear();
    int32_t node = first_child_[0], parent = -1;
    while (node >= 0 || !stack_.empty()) {
        if (node < 0) {
            node = stack_.back().root;
            parent = stack_.back().parent;
            stack_.pop_back();
        }
        const DraftNode& next = found_[static_cast<size_t>(node)];
        int32_t sibling = next_sibling_[static_cast<size_t>(node)];
        if (sibling >= 0) stack_.push_back({sibling, parent});
        draft.push_back({next.token, parent, next.survival});
        parent = static_cast<int32_t>(draft.size()) - 1;
        node = first_child_[static_cast<size_t>(node + 1)];
    }
}

uint32_t TreeBuilder::add_node(const HeapEntry& entry) {
    uint32_t node = static_cast<uint32_t>(nodes_.size()), sources = position_.num_sources;
    const Node& parent = nodes_[entry.parent];
    Node made{entry.parent, entry.token, parent.depth + 1, entry.survival, entry.score, 0, parent.alignment};
    made.alignment.advance(*position_.text, parent.token, entry.token);
    matches_.resize(matches_.size() + sources);
    for (uint32_t s = 0; s < sources; ++s) {  // a bound: one token makes a match longer by one at most
        matches_[node * sources + s].length = matches_[entry.parent * sources + s].length + 1;
    }
    if (entry.source != kNoSource) {
        made.resolved = 1u << entry.source;
        matches_[node * sources + entry.source] = entry.next;
    }
    nodes_.push_back(made);
    return node;
}

// Pushes the children of a node. The survival of one is the node's, times the probability that none of the candidates
// before it comes, times its own learned probability.
void TreeBuilder::expand(uint32_t node, const Predictor& predictor, const DraftOptions& options) {
    double survival = nodes_[node].survival;
    Scorer scorer(options, nodes_[node].score, nodes_[node].depth);
    uint32_t misses = 0, max_misses = survival >= kPromisingFactor * options.min_survival ? kMaxMisses : 1;
    // At an unpromising node only the source that proposed it is considered.
    uint32_t sources = max_misses > 1 || nodes_[node].resolved == 0 ? ~0u : nodes_[node].resolved;
    const Alignment alignment = nodes_[node].alignment;
    const uint32_t first_match = node * position_.num_sources;
    Candidates candidates(
        position_.sources, position_.num_sources, alignment, *position_.text, options.candidates,
        [&](uint32_t s) { return match(node, s); },
        [&](uint32_t s) { return sources >> s & 1 ? matches_[first_match + s].length : 0; });
    candidates.visit([&](const Candidate& candidate) {
        double p = predictor.estimate(candidate.features), child_survival = survival * p;
        double score = scorer.score(candidate.features, child_survival);
        if (child_survival >= options.min_survival) {
            push(node, candidate, score, child_survival);
            misses = 0;
        } else if (candidate.source != kNoSource && ++misses >= max_misses) {
            return false;  // later candidates are rarely better
        }
        survival *= 1 - p;
        return !scorer.is_full() && survival >= options.min_survival && survival > kMinMass;
    });
}

void TreeBuilder::push(uint32_t node, const Candidate& candidate, double score, double survival) {
    heap_.push_back({score, survival, num_pushed_++, node, candidate.token, candidate.source, candidate.next});
    std::push_heap(heap_.begin(), heap_.end());
    if (candidate.source == kNoSource) return;
    position_.sources[candidate.source].automaton->prefetch(candidate.next.state);
}

// Resolved on demand: most nodes need only the source that proposed them.
Match TreeBuilder::match(uint32_t node, uint32_t source) {
    uint32_t at = node * position_.num_sources + source;
    if (!(nodes_[node].resolved >> source & 1)) {
        Match before = match(nodes_[node].parent, source);
        matches_[at] = advance(*position_.sources[source].automaton, before, nodes_[node].token);
        nodes_[node].resolved |= 1u << source;
    }
    return matches_[at];
}

}  // namespace ngram
