// What a request's recent past says about its next token, beyond matching contexts.
//
// Text that edits an earlier text follows it, leaves it for a few tokens and comes back. The trace keeps the place
// that is being followed, and where it would come back after an insertion, a replacement or a deletion, and how
// much of the recent text came as predicted. Small: every draft node has its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "automaton/suffix_automaton.hpp"
#include "estimation/features.hpp"

namespace ngram {

using Text = std::vector<Token>;

class Trace {
   public:
    static constexpr uint32_t kGuesses = 3;

    // The alignment's guess for the next token; -1 where it has none. Guess 0: the text goes on as the followed one
    // did where it was left. While lost, guess 1: as many tokens as came since were replaced; guess 2: as after the
    // nearest place ahead that holds the newest token.
    Token guess(const Text& text, uint32_t which) const {
        if (at_ == kNone || (which > 0 && lost_ == 0)) return -1;
        uint32_t before = which == 0 ? at_ : which == 1 ? at_ + lost_ : nearest_;
        return before != kNone && before + 1 < text.size() ? text[before + 1] : -1;
    }

    Relation relation(const Text& text, Token token) const {
        if (at_ == kNone) return Relation::kNone;
        if (token == guess(text, 0)) return lost_ ? Relation::kAfterInsertion : Relation::kNext;
        if (lost_ == 0) return Relation::kOther;
        if (token == guess(text, 1)) return Relation::kAfterReplacement;
        return token == guess(text, 2) ? Relation::kNearest : Relation::kLost;
    }

    bool aligned() const { return at_ != kNone; }
    // How many tokens of context the alignment counts for.
    uint32_t length() const { return lost_ ? 2 : stretch_ + 1; }
    uint32_t stretch() const { return lost_ ? lost_ : stretch_; }
    uint32_t habit() const { return std::min(kHabits - 1, static_cast<uint32_t>(habit_ * kHabits)); }

    // `token` follows `before`, the newest token so far.
    void move(const Text& text, Token before, Token token);
    // The longest match is of `length` tokens and had last ended at `end`: follow it from now on, if that is better.
    void consider(uint32_t end, uint32_t length);
    void get_used_to(bool predicted) { habit_ += 0.03f * (static_cast<float>(predicted) - habit_); }

   private:
    void follow(uint32_t place, uint32_t stretch) {
        at_ = place;
        stretch_ = stretch;
        lost_ = 0;
    }

    uint32_t at_ = kNone;       // the followed text's newest token, in the own text
    uint32_t stretch_ = 0;      // tokens followed since
    uint32_t lost_ = 0;         // tokens that came since the followed text was left
    uint32_t nearest_ = kNone;  // while lost: the first place ahead of `at_` that holds the newest token
    float habit_ = 0.5f;
};

}  // namespace ngram
