#include "automaton/suffix_automaton.hpp"

#include <algorithm>
#include <utility>

namespace ngram {

namespace {

uint32_t capacity_of(uint32_t degree) {
    uint32_t capacity = 2;
    while (capacity < degree) capacity *= 2;
    return capacity;
}

int size_class(uint32_t capacity) { return capacity == 2 ? 0 : capacity == 4 ? 1 : capacity == 8 ? 2 : 3; }

}  // namespace

SuffixAutomaton::SuffixAutomaton(Ranking ranking) : ranking_(ranking) { add_state(0, kNone, kNone); }

SuffixAutomaton::Extension SuffixAutomaton::extend(StateId last, Token token, uint32_t end) {
    if (const Transition* known = find(last, token)) {
        auto [state, previous_end] = record_occurrence(last, token, known->next, end);
        return {state, false, previous_end};
    }
    StateId current = add_state(states_[last].length + 1, kRoot, end);
    StateId p = last;
    while (p != kNone && find(p, token) == nullptr) {
        add_transition(p, token, current);
        p = states_[p].link;
    }
    if (p == kNone) return {current, true, kNone};
    auto [link, previous_end] = record_occurrence(p, token, find(p, token)->next, end);
    set_link(current, link);
    return {current, true, previous_end};
}

// `token` leads from `p` to `q` and occurs at `end`. Contexts of `q` that are longer than those of `p` and the token do
// not end there, so the others get a state of their own. Returns the state that ends there and its previous end.
std::pair<StateId, uint32_t> SuffixAutomaton::record_occurrence(StateId p, Token token, StateId q, uint32_t end) {
    uint32_t length = states_[p].length + 1;
    if (states_[q].length != length) {
        StateId split = clone(q, length);
        redirect_transitions(p, token, q, split);
        set_link(q, split);
        q = split;
    }
    uint32_t previous_end = std::exchange(states_[q].end, end);
    count_occurrence(p, token);
    return {q, previous_end};
}

StateId SuffixAutomaton::next(StateId state, Token token) const {
    const Transition* transition = find(state, token);
    return transition == nullptr ? kNone : transition->next;
}

TopTransitions SuffixAutomaton::top(StateId id) const {
    const State& state = states_[id];
    if (state.degree <= 1) return {&state.single, state.degree, state.degree};
    if (state.degree <= kMaxTop) return {run(state), state.degree, state.degree};
    return {table(state).top(), kMaxTop, state.degree};
}

size_t SuffixAutomaton::bytes() const {
    size_t runs = 0;
    for (const auto& free : free_runs_) runs += free.capacity() * sizeof(uint32_t);
    return sizeof(*this) + states_.bytes() + pool_.bytes() + runs + table_bytes_ +
           tables_.capacity() * sizeof(tables_[0]);
}

bool SuffixAutomaton::release_chunk() {
    if (tables_.empty()) return pool_.release_chunk() || states_.release_chunk();
    table_bytes_ -= tables_.back()->bytes();
    tables_.pop_back();
    return true;
}

StateId SuffixAutomaton::add_state(uint32_t length, StateId link, uint32_t end) {
    StateId id = states_.append(1);
    states_[id] = State{length, kNone, 0, end, 0, Transition{0, kNone, 0}};
    if (link != kNone) set_link(id, link);
    return id;
}

void SuffixAutomaton::set_link(StateId state, StateId link) {
    states_[state].link = link;
    states_[state].link_length = states_[link].length;
}

// A state for the contexts of `state` up to `length`, with a copy of its transitions.
StateId SuffixAutomaton::clone(StateId state, uint32_t length) {
    StateId id = add_state(length, states_[state].link, states_[state].end);
    State& copy = states_[id];
    const State& origin = states_[state];
    copy.degree = origin.degree;
    copy.single = origin.single;
    if (origin.degree > kMaxTop) {
        copy.single.next = add_table(std::make_unique<TransitionTable>(table(origin)));
    } else if (origin.degree > 1) {
        uint32_t first = allocate_run(capacity_of(origin.degree));
        std::copy_n(run(origin), origin.degree, &pool_[first]);
        copy.single.next = first;
    }
    return id;
}

void SuffixAutomaton::add_transition(StateId id, Token token, StateId next) {
    State& state = states_[id];
    Transition transition{token, next, 1};
    uint32_t degree = state.degree++;
    if (degree == 0) {
        state.single = transition;
        return;
    }
    if (degree > kMaxTop) {
        TransitionTable& known = table(state);
        size_t before = known.bytes();
        known.add(ranking_, degree, transition);
        table_bytes_ += known.bytes() - before;
        return;
    }
    Transition held[kMaxTop + 1];
    std::copy_n(degree == 1 ? &state.single : run(state), degree, held);
    held[degree] = transition;
    if (degree == kMaxTop) {
        free_runs_[3].push_back(state.single.next);
        state.single.next = add_table(std::make_unique<TransitionTable>(ranking_, held));
        return;
    }
    if (degree == 1 || capacity_of(degree) != capacity_of(degree + 1)) {
        if (degree > 1) free_runs_[size_class(capacity_of(degree))].push_back(state.single.next);
        state.single.next = allocate_run(capacity_of(degree + 1));
    }
    Transition* transitions = run(state);
    std::copy_n(held, degree + 1, transitions);
    promote(ranking_, transitions, degree);
}

uint32_t SuffixAutomaton::allocate_run(uint32_t capacity) {
    auto& free = free_runs_[size_class(capacity)];
    if (free.empty()) return pool_.append(capacity);
    uint32_t first = free.back();
    free.pop_back();
    return first;
}

uint32_t SuffixAutomaton::add_table(std::unique_ptr<TransitionTable> table) {
    table_bytes_ += table->bytes();
    tables_.push_back(std::move(table));
    return static_cast<uint32_t>(tables_.size() - 1);
}

const Transition* SuffixAutomaton::find(StateId id, Token token) const {
    const State& state = states_[id];
    if (state.degree == 0) return nullptr;
    if (state.degree == 1) return state.single.token == token ? &state.single : nullptr;
    if (state.degree > kMaxTop) return table(state).find(token);
    const Transition* transitions = run(state);
    for (uint32_t i = 0; i < state.degree; ++i) {
        if (transitions[i].token == token) return &transitions[i];
    }
    return nullptr;
}

// `p` and the states on its suffix links: transitions to `from` lead to `to` from now on.
void SuffixAutomaton::redirect_transitions(StateId p, Token token, StateId from, StateId to) {
    while (p != kNone) {
        State& state = states_[p];
        const Transition* transition = find(p, token);
        if (transition->next != from) return;
        if (state.degree > kMaxTop) {
            table(state).redirect(token, to);
        } else {
            const_cast<Transition*>(transition)->next = to;
        }
        p = state.link;
    }
}

// Counts one occurrence of `token` after `p`, and with it after all states on its suffix links.
void SuffixAutomaton::count_occurrence(StateId p, Token token) {
    increment(p, token);
    if (ranking_ == Ranking::kUpdateExclusion) return;
    for (int i = 1; i < kMaxCounted && (p = states_[p].link) != kNone; ++i) increment(p, token);
}

void SuffixAutomaton::increment(StateId id, Token token) {
    State& state = states_[id];
    if (state.degree == 1) {
        ++state.single.count;
    } else if (state.degree <= kMaxTop) {
        Transition* transitions = run(state);
        uint32_t at = 0;
        while (transitions[at].token != token) ++at;
        ++transitions[at].count;
        promote(ranking_, transitions, at);
    } else {
        table(state).increment(ranking_, token);
    }
}

}  // namespace ngram
