// A suffix automaton over many texts (Blumer et al., 1985), grown token by token, with counted transitions.
//
// A state stands for all contexts (substrings) that end at the same positions. Its transitions are the tokens that
// followed, ranked for drafting: the most frequent or the most recent first. At most 2 states and 3 transitions per
// token. Knows nothing about requests, probabilities and drafts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "automaton/chunked_array.hpp"
#include "automaton/transition_table.hpp"

namespace ngram {

// The highest ranked transitions of a state, best first.
struct TopTransitions {
    const Transition* data;
    uint32_t size;    // at most kMaxTop
    uint32_t degree;  // all transitions of the state
};

class SuffixAutomaton {
   public:
    static constexpr int kMaxCounted = 64;  // states that count one occurrence, the longest first; bounds "a a a a ..."

    explicit SuffixAutomaton(Ranking ranking);
    SuffixAutomaton(SuffixAutomaton&&) = default;
    SuffixAutomaton& operator=(SuffixAutomaton&&) = default;

    struct Extension {
        StateId state;          // of the whole text so far
        bool is_new;            // no other text contains the whole text so far
        uint32_t previous_end;  // the last end of the longest suffix that was known before; kNone if there is none
    };
    // Appends `token` to the text whose state is `last` (kRoot begins a new text). `end`: the token's position.
    Extension extend(StateId last, Token token, uint32_t end);

    // The state after `token`; kNone without such a transition.
    StateId next(StateId state, Token token) const;
    TopTransitions top(StateId state) const;
    // The state of the longest contexts that are shorter and end at more positions.
    StateId suffix_link(StateId state) const { return states_[state].link; }
    // Tokens of the longest context of the state.
    uint32_t length(StateId state) const { return states_[state].length; }
    // length(suffix_link(state)) without a memory access to that state; 0 for the root.
    uint32_t link_length(StateId state) const { return states_[state].link_length; }
    void prefetch(StateId state) const { __builtin_prefetch(&states_[state]); }

    // Frees a chunk of memory; false when none is left. Nothing else may be called afterwards.
    bool release_chunk();

    size_t bytes() const;

   private:
    // 32 bytes, two to a cache line. Degree 1 is stored in place; up to kMaxTop transitions are a run of the pool; more
    // are a hash table.
    struct State {
        uint32_t length;
        StateId link;
        uint32_t link_length;
        uint32_t end;  // position at which the state was last the longest known suffix
        uint32_t degree;
        Transition single;  // degree 1: the transition; else `next` is the run's first index or the table's
    };

    StateId add_state(uint32_t length, StateId link, uint32_t end);
    void set_link(StateId state, StateId link);
    StateId clone(StateId state, uint32_t length);
    std::pair<StateId, uint32_t> record_occurrence(StateId p, Token token, StateId q, uint32_t end);
    void add_transition(StateId state, Token token, StateId next);
    void redirect_transitions(StateId state, Token token, StateId from, StateId to);
    void count_occurrence(StateId state, Token token);
    void increment(StateId state, Token token);
    const Transition* find(StateId state, Token token) const;
    Transition* run(const State& state) { return &pool_[state.single.next]; }
    const Transition* run(const State& state) const { return &pool_[state.single.next]; }
    uint32_t allocate_run(uint32_t capacity);
    TransitionTable& table(const State& state) const { return *tables_[state.single.next]; }
    uint32_t add_table(std::unique_ptr<TransitionTable> table);

    Ranking ranking_;
    ChunkedArray<State> states_;
    ChunkedArray<Transition> pool_;
    std::vector<uint32_t> free_runs_[4];  // runs of 2, 4, 8, 16
    std::vector<std::unique_ptr<TransitionTable>> tables_;
    size_t table_bytes_ = 0;
};

}  // namespace ngram
