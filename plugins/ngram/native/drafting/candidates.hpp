// The contexts of one position in several automata, and the candidates for the next token that they give.
#pragma once

#include <algorithm>
#include <cstdint>

#include "automaton/suffix_automaton.hpp"
#include "drafting/alignment.hpp"
#include "estimation/features.hpp"

namespace ngram {

// The longest context of a position that an automaton knows: a state and how many tokens of it match.
struct Place {
    StateId state = kRoot;
    uint32_t length = 0;
};

struct Source {
    const Automaton* automaton;
    Kind kind;
};

// The place with the longest of the shorter contexts.
inline Place shorter(const Automaton& automaton, Place at) {
    return {automaton.link(at.state), automaton.link_length(at.state)};
}

// The place one token further.
inline Place advance(const Automaton& automaton, Place at, Token token) {
    while (true) {
        StateId next = automaton.follow(at.state, token);
        if (next != kNone) return {next, at.length + 1};
        if (at.state == kRoot) return {};
        at = shorter(automaton, at);
    }
}

// The place, after other texts were written: they may have split its state, whose shorter contexts are the other half's
// then.
inline Place found_again(const Automaton& automaton, Place at) {
    while (at.state != kRoot && at.length <= automaton.link_length(at.state)) at.state = automaton.link(at.state);
    return at;
}

constexpr uint32_t kMostSources = 16;
constexpr uint32_t kNoSource = kMostSources;

// A candidate for the token after a context.
struct Candidate {
    Token token;
    uint32_t source;  // kNoSource: the alignment's guess
    Place next;       // where its source stands after it
    Evidence evidence;
};

// Lengths of contexts that may speak, and how many candidates are heard.
struct Window {
    uint32_t min_match, max_match;
    uint32_t per_context;  // continuations of one context
    uint32_t per_token;    // candidates for one token, at most kMostCandidates
};
constexpr uint32_t kMostContexts = 32;
constexpr uint32_t kMostCandidates = 32;

// Gives the candidates of one position from the longest context down, each token once. At equal length the
// alignment speaks first, then the sources in their order.
template <typename PlaceOf, typename BoundOf>
class Candidates {
   public:
    // `place(s)` is the place in source s; `bound(s)` at least its length, and cheaper.
    Candidates(const Source* sources, uint32_t num_sources, const Trace& trace, const Text& text, const Window& window,
               PlaceOf place, BoundOf bound)
        : sources_(sources), num_sources_(num_sources), trace_(trace), text_(text), window_(window), place_(place) {
        for (uint32_t s = 0; s < num_sources; ++s) length_[s] = std::min(bound(s), window.max_match);
    }

    // Calls visit(candidate) until it returns false.
    template <typename Visit>
    void visit(Visit visit) {
        bool aligned = trace_.aligned();
        for (uint32_t contexts = 0; contexts < kMostContexts;) {
            uint32_t s = longest();
            bool over = length_[s] < window_.min_match;  // which is 1 or more
            if (aligned && (over || trace_.length() >= length_[s])) {
                aligned = false;
                if (!visit_guesses(visit)) return;
            }
            if (over) return;
            if (!(known_ >> s & 1)) {  // only now find out where the source really stands
                find(s);
                continue;
            }
            ++contexts;
            if (!visit_context(s, visit)) return;
            at_[s] = shorter(*sources_[s].automaton, at_[s]);
            length_[s] = at_[s].length;
        }
    }

   private:
    uint32_t longest() const {
        uint32_t best = 0;
        for (uint32_t s = 1; s < num_sources_; ++s) {
            if (length_[s] > length_[best]) best = s;
        }
        return best;
    }

    void find(uint32_t s) {
        const Automaton& automaton = *sources_[s].automaton;
        known_ |= 1u << s;
        at_[s] = place_(s);
        while (automaton.link_length(at_[s].state) >= window_.max_match) {
            at_[s] = shorter(automaton, at_[s]);
        }
        length_[s] = std::min(at_[s].length, window_.max_match);
    }

    template <typename Visit>
    bool visit_guesses(Visit& visit) {
        for (uint32_t which = 0; which < Trace::kGuesses; ++which) {
            Token token = trace_.guess(text_, which);
            if (token < 0 || !is_new(token)) continue;
            if (!visit(Candidate{token, kNoSource, {}, evidence(Kind::kAligned, token, 1, which, 1, 1, 1)}))
                return false;
            if (num_seen_ == window_.per_token) return false;
        }
        return true;
    }

    template <typename Visit>
    bool visit_context(uint32_t s, Visit& visit) {
        const Automaton& automaton = *sources_[s].automaton;
        automaton.prefetch(automaton.link(at_[s].state));  // most likely the next context
        Front front = automaton.front(at_[s].state);
        uint32_t size = std::min(front.size, window_.per_context), total = 0;
        for (uint32_t i = 0; i < size; ++i) total += front.edges[i].count;
        for (uint32_t rank = 0; rank < size; ++rank) {
            const Edge& edge = front.edges[rank];
            if (!is_new(edge.token)) continue;
            Candidate candidate{
                edge.token,
                s,
                {edge.next, length_[s] + 1},
                evidence(sources_[s].kind, edge.token, length_[s], rank, edge.count, total, front.degree)};
            if (!visit(candidate)) return false;
            if (num_seen_ == window_.per_token) return false;
        }
        return true;
    }

    Evidence evidence(Kind kind, Token token, uint32_t length, uint32_t rank, uint32_t count, uint32_t total,
                      uint32_t degree) const {
        return {kind, trace_.relation(text_, token), length, rank, count, total, degree, trace_.stretch()};
    }

    bool is_new(Token token) {
        if (std::find(seen_, seen_ + num_seen_, token) != seen_ + num_seen_) return false;
        seen_[num_seen_++] = token;
        return true;
    }

    const Source* sources_;
    uint32_t num_sources_;
    const Trace& trace_;
    const Text& text_;
    const Window& window_;
    PlaceOf place_;
    Place at_[kMostSources];
    uint32_t length_[kMostSources];
    uint32_t known_ = 0;
    Token seen_[kMostCandidates];
    uint32_t num_seen_ = 0;
};

}  // namespace ngram
