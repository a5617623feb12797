// The alignment of a request's text with the earlier part of itself that it repeats with edits.
//
// The text follows an earlier part token by token, diverges from it at an edit, and realigns behind it. The alignment
// keeps the position that is followed, the positions at which an insertion, a substitution or a deletion would realign,
// and how many of the recent tokens were predicted. Small: every draft node has a copy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "automaton/suffix_automaton.hpp"
#include "estimation/features.hpp"

namespace ngram {

using Text = std::vector<Token>;

class Alignment {
   public:
    static constexpr uint32_t kMaxPredictions = 3;
    static constexpr uint32_t kSearchWindow = 64;   // tokens ahead in which a deletion is looked for
    static constexpr uint32_t kMaxDivergence = 48;  // tokens; after more, any match of 2 tokens is followed instead
    static constexpr uint32_t kRealignLength = 4;   // tokens of a match that is followed instead at once
    static constexpr float kHitRateUpdate = 0.03f;  // weight of the newest token

    // Prediction `which` for the next token; -1 if there is none. 0: the followed part goes on from where it was left,
    // so while diverged the tokens since were inserted. While diverged, 1: they were substituted, one for one. 2:
    // tokens were deleted, up to the next position that holds the newest token.
    Token prediction(const Text& text, uint32_t which) const {
        if (at_ == kNone || (which > 0 && diverged_ == 0)) return -1;
        uint32_t before = which == 0 ? at_ : which == 1 ? at_ + diverged_ : nearest_;
        return before != kNone && before + 1 < text.size() ? text[before + 1] : -1;
    }

    // What it predicts about a candidate for the next token.
    Relation relation(const Text& text, Token token) const {
        if (at_ == kNone) return Relation::kUnaligned;
        if (token == prediction(text, 0)) return diverged_ ? Relation::kAfterInsertion : Relation::kPredicted;
        if (diverged_ == 0) return Relation::kMismatch;
        if (token == prediction(text, 1)) return Relation::kAfterSubstitution;
        return token == prediction(text, 2) ? Relation::kAfterDeletion : Relation::kDiverged;
    }

    bool is_aligned() const { return at_ != kNone; }
    // Its predictions come before contexts of at most this many tokens.
    uint32_t length() const { return diverged_ ? 2 : followed_ + 1; }
    // Tokens since the alignment began, or since it diverged.
    uint32_t run_length() const { return diverged_ ? diverged_ : followed_; }
    // Bucket of the share of recent tokens that were predicted.
    uint32_t hit_rate() const {
        return std::min(kHitRateBuckets - 1, static_cast<uint32_t>(hit_rate_ * kHitRateBuckets));
    }

    // `token` comes after `before`, the newest token so far. `text` need not contain them: draft nodes do not enter it.
    void advance(const Text& text, Token before, Token token);
    // The text's longest match has `length` tokens and last ended at position `end` before; kNone if there is none.
    void realign(uint32_t end, uint32_t length);
    void update_hit_rate(bool hit) { hit_rate_ += kHitRateUpdate * (static_cast<float>(hit) - hit_rate_); }

   private:
    void follow(uint32_t position, uint32_t followed) {
        at_ = position;
        followed_ = followed;
        diverged_ = 0;
    }

    uint32_t at_ = kNone;       // position of the followed part's newest token in the request's own text
    uint32_t followed_ = 0;     // tokens since the alignment began
    uint32_t diverged_ = 0;     // tokens since it diverged; 0 while aligned
    uint32_t nearest_ = kNone;  // while diverged: the first position ahead of `at_` that holds the newest token
    float hit_rate_ = 0.5f;     // exponential moving average
};

}  // namespace ngram
