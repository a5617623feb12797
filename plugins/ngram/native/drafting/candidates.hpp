// The candidates for the next token of a text: the alignment's predictions and what followed its contexts in several
// automata, from the longest context down (the order of PPM, Cleary and Witten 1984).
#pragma once

#include <algorithm>
#include <cstdint>

#include "automaton/match.hpp"
#include "drafting/alignment.hpp"
#include "estimation/features.hpp"

namespace ngram {

struct Source {
    const SuffixAutomaton* automaton;
    Origin origin;
};
constexpr uint32_t kMaxSources = 16;
constexpr uint32_t kNoSource = kMaxSources;

struct Candidate {
    Token token;
    uint32_t source;  // kNoSource: a prediction of the alignment
    Match next;       // the match in that source after the token
    Features features;
};

// Which contexts are considered, and how many of their continuations. Lengths are in tokens.
struct CandidateLimits {
    uint32_t min_match, max_match;
    uint32_t per_context;  // continuations of one context
    uint32_t per_token;    // candidates for one token, at most kMaxCandidates
};
constexpr uint32_t kMaxContexts = 32;
constexpr uint32_t kMaxCandidates = 32;

// Enumerates the candidates of one position, each token once. At equal length the alignment comes first, then the
// sources in their order.
template <typename MatchOf, typename BoundOf>
class Candidates {
   public:
    // `match(s)` is the match in source s; `bound(s)` is at least its length, and cheaper.
    Candidates(const Source* sources, uint32_t num_sources, const Alignment& alignment, const Text& text,
               const CandidateLimits& limits, MatchOf match, BoundOf bound)
        : sources_(sources), num_sources_(num_sources), alignment_(alignment), text_(text), limits_(limits),
          match_(match) {
        for (uint32_t s = 0; s < num_sources; ++s) length_[s] = std::min(bound(s), limits.max_match);
    }

    // Calls visit(candidate) until it returns false.
    template <typename Visit>
    void visit(Visit visit) {
        bool has_predictions = alignment_.is_aligned();
        for (uint32_t contexts = 0; contexts < kMaxContexts;) {
            uint32_t s = longest();
            bool is_exhausted = length_[s] < limits_.min_match;  // which is 1 or more
            if (has_predictions && (is_exhausted || alignment_.length() >= length_[s])) {
                has_predictions = false;
                if (!visit_predictions(visit)) return;
            }
            if (is_exhausted) return;
            if (!(is_resolved_ >> s & 1)) {  // so far only the bound was known
                resolve(s);
                continue;
            }
            ++contexts;
            if (!visit_context(s, visit)) return;
            at_[s] = shorter_match(*sources_[s].automaton, at_[s]);
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

    void resolve(uint32_t s) {
        const SuffixAutomaton& automaton = *sources_[s].automaton;
        is_resolved_ |= 1u << s;
        at_[s] = match_(s);
        while (automaton.link_length(at_[s].state) >= limits_.max_match) at_[s] = shorter_match(automaton, at_[s]);
        length_[s] = std::min(at_[s].length, limits_.max_match);
    }

    template <typename Visit>
    bool visit_predictions(Visit& visit) {
        for (uint32_t which = 0; which < Alignment::kMaxPredictions; ++which) {
            Token token = alignment_.prediction(text_, which);
            if (token < 0 || !is_new(token)) continue;
            Candidate candidate{token, kNoSource, {}, features(Origin::kAlignment, token, 1, which, 1, 1, 1)};
            if (!visit(candidate)) return false;
            if (num_seen_ == limits_.per_token) return false;
        }
        return true;
    }

    template <typename Visit>
    bool visit_context(uint32_t s, Visit& visit) {
        const SuffixAutomaton& automaton = *sources_[s].automaton;
        automaton.prefetch(automaton.suffix_link(at_[s].state));  // most likely the next context
        TopTransitions top = automaton.top(at_[s].state);
        uint32_t size = std::min(top.size, limits_.per_context), total = 0;
        for (uint32_t i = 0; i < size; ++i) total += top.data[i].count;
        for (uint32_t rank = 0; rank < size; ++rank) {
            auto [token, next, count] = top.data[rank];
            if (!is_new(token)) continue;
            Candidate candidate{token,
                                s,
                                {next, length_[s] + 1},
                                features(sources_[s].origin, token, length_[s], rank, count, total, top.degree)};
            if (!visit(candidate)) return false;
            if (num_seen_ == limits_.per_token) return false;
        }
        return true;
    }

    Features features(Origin origin, Token token, uint32_t match_length, uint32_t rank, uint32_t count, uint32_t total,
                      uint32_t degree) const {
        Relation relation = alignment_.relation(text_, token);
        return {origin, relation, match_length, rank, count, total, degree, alignment_.run_length()};
    }

    bool is_new(Token token) {
        if (std::find(seen_, seen_ + num_seen_, token) != seen_ + num_seen_) return false;
        seen_[num_seen_++] = token;
        return true;
    }

    const Source* sources_;
    uint32_t num_sources_;
    const Alignment& alignment_;
    const Text& text_;
    const CandidateLimits& limits_;
    MatchOf match_;
    Match at_[kMaxSources];         // the contexts that come next
    uint32_t length_[kMaxSources];  // their lengths, or bounds of them where they are not resolved
    uint32_t is_resolved_ = 0;      // bit s: at_[s] is set
    Token seen_[kMaxCandidates];
    uint32_t num_seen_ = 0;
};

}  // namespace ngram
