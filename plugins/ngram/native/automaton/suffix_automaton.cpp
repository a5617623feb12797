#include "automaton/suffix_automaton.hpp"

#include <algorithm>
#include <cassert>

namespace ngram {

namespace {

uint32_t hash(Token token) {
    uint32_t h = static_cast<uint32_t>(token) * 0x9e3779b1u;
    return h ^ (h >> 15);
}

uint32_t capacity_of(uint32_t degree) {
    uint32_t capacity = 2;
    while (capacity < degree) capacity *= 2;
    return capacity;
}

int size_class(uint32_t capacity) { return capacity == 2 ? 0 : capacity == 4 ? 1 : capacity == 8 ? 2 : 3; }

}  // namespace

Automaton::Automaton(Order order) : order_(order) { add_state(0, kNone, kNone); }

Automaton::Extension Automaton::extend(StateId last, Token token, uint32_t end) {
    uint32_t length = states_[last].length + 1;
    if (const Edge* known = find(last, token)) {  // another text went this way
        StateId q = known->next;
        uint32_t seen = states_[q].end;
        if (states_[q].length != length) {
            StateId split = clone(q, length, end);
            redirect(last, token, q, split);
            set_link(q, split);
            q = split;
        }
        states_[q].end = end;
        touch(last, token);
        return {q, false, seen};
    }
    StateId current = add_state(length, kRoot, end);
    StateId p = last;
    while (p != kNone && find(p, token) == nullptr) {
        add_edge(p, token, current);
        p = states_[p].link;
    }
    if (p == kNone) return {current, true, kNone};
    StateId q = find(p, token)->next;
    uint32_t seen = states_[q].end;
    if (states_[q].length != states_[p].length + 1) {
        StateId split = clone(q, states_[p].length + 1, end);
        redirect(p, token, q, split);
        set_link(q, split);
        q = split;
    }
    states_[q].end = end;
    set_link(current, q);
    touch(p, token);
    return {current, true, seen};
}

StateId Automaton::follow(StateId state, Token token) const {
    const Edge* edge = find(state, token);
    return edge == nullptr ? kNone : edge->next;
}

Front Automaton::front(StateId id) const {
    const State& state = states_[id];
    if (state.degree <= 1) return {&state.only, state.degree, state.degree};
    if (state.degree <= kFront) return {run(state), state.degree, state.degree};
    return {wide_[state.only.next]->front, kFront, state.degree};
}

size_t Automaton::bytes() const {
    size_t runs = 0;
    for (const auto& free : free_runs_) runs += free.capacity() * sizeof(uint32_t);
    return sizeof(*this) + states_.bytes() + pool_.bytes() + runs + wide_bytes_ + wide_.capacity() * sizeof(wide_[0]);
}

bool Automaton::release() {
    if (wide_.empty()) return pool_.release() || states_.release();
    wide_bytes_ -= sizeof(Wide) + wide_.back()->slots.capacity() * sizeof(Edge);
    wide_.pop_back();
    return true;
}

StateId Automaton::add_state(uint32_t length, StateId link, uint32_t end) {
    StateId id = states_.append(1);
    states_[id] = State{length, kNone, 0, end, 0, Edge{0, kNone, 0}};
    if (link != kNone) set_link(id, link);
    return id;
}

void Automaton::set_link(StateId state, StateId link) {
    states_[state].link = link;
    states_[state].link_length = states_[link].length;
}

// A state for the shorter contexts of `state`, which from now on end at more places than its longer ones.
StateId Automaton::clone(StateId state, uint32_t length, uint32_t end) {
    StateId id = add_state(length, states_[state].link, end);
    State& copy = states_[id];
    const State& origin = states_[state];
    copy.degree = origin.degree;
    copy.only = origin.only;
    if (origin.degree > kFront) {
        wide_.push_back(std::make_unique<Wide>(*wide_[origin.only.next]));
        wide_bytes_ += sizeof(Wide) + wide_.back()->slots.capacity() * sizeof(Edge);
        copy.only.next = static_cast<uint32_t>(wide_.size() - 1);
    } else if (origin.degree > 1) {
        uint32_t first = take_run(capacity_of(origin.degree));
        std::copy_n(run(origin), origin.degree, &pool_[first]);
        copy.only.next = first;
    }
    return id;
}

void Automaton::add_edge(StateId id, Token token, StateId next) {
    State& state = states_[id];
    Edge edge{token, next, 1};
    uint32_t degree = state.degree++;
    if (degree == 0) {
        state.only = edge;
        return;
    }
    if (degree > kFront) {
        insert_wide(*wide_[state.only.next], degree, edge);
        return;
    }
    Edge held[kFront + 1];
    std::copy_n(degree == 1 ? &state.only : run(state), degree, held);
    held[degree] = edge;
    if (degree == kFront) {
        free_runs_[3].push_back(state.only.next);
        widen(state, held);
        return;
    }
    if (degree == 1 || capacity_of(degree) != capacity_of(degree + 1)) {
        if (degree > 1) free_runs_[size_class(capacity_of(degree))].push_back(state.only.next);
        state.only.next = take_run(capacity_of(degree + 1));
    }
    Edge* edges = run(state);
    std::copy_n(held, degree + 1, edges);
    promote(edges, degree + 1, degree);
}

uint32_t Automaton::take_run(uint32_t capacity) {
    auto& free = free_runs_[size_class(capacity)];
    if (free.empty()) return pool_.append(capacity);
    uint32_t first = free.back();
    free.pop_back();
    return first;
}

// kFront + 1 edges move into a table of their own.
void Automaton::widen(State& state, const Edge* edges) {
    auto wide = std::make_unique<Wide>();
    wide->slots.assign(4 * kFront, Edge{0, kNone, 0});
    wide_bytes_ += sizeof(Wide) + wide->slots.capacity() * sizeof(Edge);
    for (uint32_t i = 0; i <= kFront; ++i) *slot(*wide, edges[i].token) = edges[i];
    std::copy_n(edges, kFront, wide->front);
    note_use(*wide, edges[kFront]);
    state.only.next = static_cast<uint32_t>(wide_.size());
    wide_.push_back(std::move(wide));
}

void Automaton::insert_wide(Wide& wide, uint32_t degree, Edge edge) {
    if (4 * size_t{degree} > 3 * wide.slots.size()) {
        std::vector<Edge> old(2 * wide.slots.size(), Edge{0, kNone, 0});
        wide_bytes_ += (old.size() - wide.slots.size()) * sizeof(Edge);
        old.swap(wide.slots);
        for (const Edge& e : old) {
            if (e.next != kNone) *slot(wide, e.token) = e;
        }
    }
    *slot(wide, edge.token) = edge;
    note_use(wide, edge);
}

// Where the token's edge lies, or the empty slot where it belongs.
Edge* Automaton::slot(Wide& wide, Token token) {
    size_t mask = wide.slots.size() - 1;
    size_t i = hash(token) & mask;
    while (wide.slots[i].next != kNone && wide.slots[i].token != token) i = (i + 1) & mask;
    return &wide.slots[i];
}

// Brings a wide state's front up to date with an edge that was just used.
void Automaton::note_use(Wide& wide, const Edge& edge) {
    uint32_t at = 0;
    while (at < kFront && wide.front[at].token != edge.token) ++at;
    if (at == kFront) {
        if (order_ != Order::kRecency && edge.count < wide.front[kFront - 1].count) return;
        at = kFront - 1;
    }
    wide.front[at] = edge;
    promote(wide.front, kFront, at);
}

// Moves the edge at `at` forward to its place: to the front, or before every edge that is not more frequent.
void Automaton::promote(Edge* edges, uint32_t size, uint32_t at) const {
    assert(at < size);
    (void)size;
    Edge edge = edges[at];
    while (at > 0 && (order_ == Order::kRecency || edges[at - 1].count <= edge.count)) {
        edges[at] = edges[at - 1];
        --at;
    }
    edges[at] = edge;
}

const Edge* Automaton::find(StateId id, Token token) const {
    const State& state = states_[id];
    if (state.degree == 0) return nullptr;
    if (state.degree == 1) return state.only.token == token ? &state.only : nullptr;
    if (state.degree > kFront) {
        const Edge* found = slot(*wide_[state.only.next], token);
        return found->next == kNone ? nullptr : found;
    }
    const Edge* edges = run(state);
    for (uint32_t i = 0; i < state.degree; ++i) {
        if (edges[i].token == token) return &edges[i];
    }
    return nullptr;
}

// All contexts from `p` up whose edge leads to `from` lead to `to`.
void Automaton::redirect(StateId p, Token token, StateId from, StateId to) {
    while (p != kNone) {
        State& state = states_[p];
        if (state.degree > kFront) {
            Wide& wide = *wide_[state.only.next];
            Edge* edge = slot(wide, token);
            if (edge->next != from) return;
            edge->next = to;
            for (Edge& copy : wide.front) {
                if (copy.token == token) copy.next = to;
            }
        } else {
            Edge* edge = const_cast<Edge*>(find(p, token));
            if (edge->next != from) return;
            edge->next = to;
        }
        p = state.link;
    }
}

// The token was seen after the context `p`, and so after all of its shorter contexts.
void Automaton::touch(StateId p, Token token) {
    count(p, token);
    if (order_ == Order::kLongest) return;
    for (int i = 1; i < kCounted && (p = states_[p].link) != kNone; ++i) count(p, token);
}

void Automaton::count(StateId id, Token token) {
    State& state = states_[id];
    if (state.degree == 1) {
        ++state.only.count;
    } else if (state.degree <= kFront) {
        Edge* edges = run(state);
        uint32_t at = 0;
        while (edges[at].token != token) ++at;
        ++edges[at].count;
        promote(edges, state.degree, at);
    } else {
        Wide& wide = *wide_[state.only.next];
        Edge* edge = slot(wide, token);
        ++edge->count;
        note_use(wide, *edge);
    }
}

}  // namespace ngram
