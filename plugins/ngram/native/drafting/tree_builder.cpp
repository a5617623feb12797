#include "drafting/tree_builder.hpp"

#include <algorithm>

namespace ngram {

namespace {
constexpr double kLeastMass = 1e-4;  // below this nobody looks for more candidates
constexpr double kPromising = 10;    // times min_survival: below this one poor candidate ends the search
constexpr uint32_t kPatience = 4;    // above it, so many in a row

// Wide after a short match, narrow and so deep after a long one.
uint32_t breadth_for(uint32_t length, const Limits& limits) {
    const Window& window = limits.window;
    uint32_t range = window.max_match - window.min_match, spread = window.per_token - limits.min_breadth;
    if (range == 0) return limits.min_breadth;
    return window.per_token - spread * (std::min(length, window.max_match) - window.min_match) / range;
}
}  // namespace

void TreeGrower::grow(const Position& position, const Predictor& predictor, const Limits& limits, uint32_t limit,
                      std::vector<DraftNode>& draft) {
    position_ = position;
    order_ = 0;
    heap_.clear();
    found_.clear();
    nodes_.clear();
    places_.assign(position.places, position.places + position.num_sources);
    Token newest = position.text->empty() ? -1 : position.text->back();
    nodes_.push_back({0, newest, 0, 1.0, 1.0, (1u << position.num_sources) - 1, *position.trace});
    if (limit > 0) expand(0, predictor, limits);
    while (!heap_.empty() && found_.size() < limit) {
        std::pop_heap(heap_.begin(), heap_.end());
        Entry best = heap_.back();
        heap_.pop_back();
        found_.push_back({best.token, static_cast<int32_t>(best.parent) - 1, best.survival});
        uint32_t node = add(best);
        if (nodes_[node].depth < limits.max_depth && found_.size() < limit) expand(node, predictor, limits);
    }
    order_by_branch(draft);
}

// Depth first, the better child first: the best path leads, and every branch lies together, which attention
// computes in one go.
void TreeGrower::order_by_branch(std::vector<DraftNode>& draft) {
    size_t size = found_.size();
    first_child_.assign(size + 1, -1);
    next_sibling_.assign(size, -1);
    for (size_t i = size; i-- > 0;) {  // backwards, so that the child that was found first leads
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
            node = stack_.back().node;
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

uint32_t TreeGrower::add(const Entry& entry) {
    uint32_t node = static_cast<uint32_t>(nodes_.size()), sources = position_.num_sources;
    const Node& parent = nodes_[entry.parent];
    Node made{entry.parent, entry.token, parent.depth + 1, entry.survival, entry.score, 0, parent.trace};
    made.trace.move(*position_.text, parent.token, entry.token);
    places_.resize(places_.size() + sources);
    // a match grows by a token at most
    for (uint32_t s = 0; s < sources; ++s)
        places_[node * sources + s].length = places_[entry.parent * sources + s].length + 1;
    if (entry.source != kNoSource) {
        made.known = 1u << entry.source;
        places_[node * sources + entry.source] = entry.next;
    }
    nodes_.push_back(made);
    return node;
}

// Every candidate for the token after the node: its survival is the node's, times the mass that the candidates
// before it left, times its learned probability.
void TreeGrower::expand(uint32_t node, const Predictor& predictor, const Limits& limits) {
    double survival = nodes_[node].survival, left = nodes_[node].score;
    uint32_t depth = nodes_[node].depth, heard = 0, breadth = limits.window.per_token, length = 0, fails = 0;
    uint32_t patience = survival >= kPromising * limits.min_survival ? kPatience : 1;
    // at an unpromising node only the source that proposed it speaks
    uint32_t heard_sources = patience > 1 || nodes_[node].known == 0 ? ~0u : nodes_[node].known;
    const Trace trace = nodes_[node].trace;
    const uint32_t first_place = node * position_.num_sources;
    Candidates candidates(
        position_.sources, position_.num_sources, trace, *position_.text, limits.window,
        [&](uint32_t s) { return place(node, s); },
        [&](uint32_t s) { return heard_sources >> s & 1 ? places_[first_place + s].length : 0; });
    candidates.visit([&](const Candidate& candidate) {
        const Evidence& e = candidate.evidence;
        double p = predictor.estimate(e), score = survival * p;
        if (limits.shape == Shape::kRecency) {
            if (heard == 0) breadth = breadth_for(e.length, limits);
            score = -static_cast<double>(depth);
        } else if (limits.shape == Shape::kFrequency) {
            if (heard > 0 && e.length != length) left *= 0.5;  // an escape to a shorter context
            score = left * e.count / e.total;
        }
        length = e.length;
        if (survival * p >= limits.min_survival) {
            heap_.push_back({score, survival * p, order_++, node, candidate.token, candidate.source, candidate.next});
            std::push_heap(heap_.begin(), heap_.end());
            fails = 0;
            if (candidate.source != kNoSource) {
                position_.sources[candidate.source].automaton->prefetch(candidate.next.state);
            }
        } else if (e.kind != Kind::kAligned && ++fails >= patience) {
            return false;  // the candidates that follow are rarely better
        }
        survival *= 1 - p;
        return ++heard < breadth && survival >= limits.min_survival && survival > kLeastMass;
    });
}

// Found on demand: most nodes need only the source that proposed them.
Place TreeGrower::place(uint32_t node, uint32_t source) {
    uint32_t at = node * position_.num_sources + source;
    if (!(nodes_[node].known >> source & 1)) {
        Place before = place(nodes_[node].parent, source);
        places_[at] = advance(*position_.sources[source].automaton, before, nodes_[node].token);
        nodes_[node].known |= 1u << source;
    }
    return places_[at];
}

}  // namespace ngram
