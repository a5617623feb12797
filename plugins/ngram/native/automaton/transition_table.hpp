// Transitions of one state of a suffix automaton: their ranking, and the hash table of a state that has many.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ngram {

using Token = int32_t;
using StateId = uint32_t;
constexpr StateId kNone = 0xffffffffu;
constexpr StateId kRoot = 0;

struct Transition {
    Token token;
    StateId next;
    uint32_t count;  // occurrences of the token after the state's contexts
};

// Which contexts count an occurrence of a token, and how a state's transitions are ranked.
enum class Ranking : uint8_t {
    kUpdateExclusion,  // by count; only the longest context that had the transition counts it (PPM, Moffat 1990)
    kFrequency,        // by count; every context counts it
    kRecency,          // by last occurrence; every context counts it
};

constexpr uint32_t kMaxTop = 16;  // transitions of a state that are kept in order

// Moves the transition at `at`, which was just added or counted, before those of equal or lower rank.
inline void promote(Ranking ranking, Transition* transitions, uint32_t at) {
    Transition transition = transitions[at];
    while (at > 0 && (ranking == Ranking::kRecency || transitions[at - 1].count <= transition.count)) {
        transitions[at] = transitions[at - 1];
        --at;
    }
    transitions[at] = transition;
}

// More than kMaxTop transitions: a hash table by token, and copies of the highest ranked in order.
class TransitionTable {
   public:
    // Takes kMaxTop + 1 transitions, all but the last in order.
    TransitionTable(Ranking ranking, const Transition* transitions) : slots_(4 * kMaxTop, Transition{0, kNone, 0}) {
        for (uint32_t i = 0; i <= kMaxTop; ++i) *slot(transitions[i].token) = transitions[i];
        std::copy_n(transitions, kMaxTop, top_);
        update_top(ranking, transitions[kMaxTop]);
    }

    const Transition* top() const { return top_; }
    size_t bytes() const { return sizeof(*this) + slots_.capacity() * sizeof(Transition); }

    // Null if there is none.
    const Transition* find(Token token) const {
        const Transition* found = const_cast<TransitionTable*>(this)->slot(token);
        return found->next == kNone ? nullptr : found;
    }

    // A token that the table, with `degree` transitions, does not have.
    void add(Ranking ranking, uint32_t degree, const Transition& transition) {
        if (4 * size_t{degree} > 3 * slots_.size()) grow();
        *slot(transition.token) = transition;
        update_top(ranking, transition);
    }

    // The others take a token that the table has.
    void increment(Ranking ranking, Token token) {
        Transition* transition = slot(token);
        ++transition->count;
        update_top(ranking, *transition);
    }

    void redirect(Token token, StateId to) {
        slot(token)->next = to;
        for (Transition& copy : top_) {
            if (copy.token == token) copy.next = to;
        }
    }

   private:
    // The slot of the token, or the empty one where it belongs.
    Transition* slot(Token token) {
        uint32_t hash = static_cast<uint32_t>(token) * 0x9e3779b1u;
        size_t mask = slots_.size() - 1, i = (hash ^ (hash >> 15)) & mask;
        while (slots_[i].next != kNone && slots_[i].token != token) i = (i + 1) & mask;
        return &slots_[i];
    }

    void grow() {
        std::vector<Transition> old(2 * slots_.size(), Transition{0, kNone, 0});
        old.swap(slots_);
        for (const Transition& t : old) {
            if (t.next != kNone) *slot(t.token) = t;
        }
    }

    void update_top(Ranking ranking, const Transition& transition) {
        uint32_t at = 0;
        while (at < kMaxTop && top_[at].token != transition.token) ++at;
        if (at == kMaxTop) {
            if (ranking != Ranking::kRecency && transition.count < top_[kMaxTop - 1].count) return;
            at = kMaxTop - 1;
        }
        top_[at] = transition;
        promote(ranking, top_, at);
    }

    std::vector<Transition> slots_;  // open addressing, linear probing; empty slots have next == kNone
    Transition top_[kMaxTop];
};

}  // namespace ngram
