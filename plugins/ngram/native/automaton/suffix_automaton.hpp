// A suffix automaton over many texts (Blumer et al., 1985), grown token by token, with counted edges.
//
// A state stands for all contexts that end at the same places. Its edges are the tokens that followed, in the
// order that drafting asks for: most frequent first, or most recent first. At most 2 states and 3 edges per token.
// Knows nothing about requests, probabilities and drafts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "automaton/chunked_array.hpp"

namespace ngram {

using Token = int32_t;
using StateId = uint32_t;
constexpr StateId kNone = 0xffffffffu;
constexpr StateId kRoot = 0;

struct Edge {
    Token token;
    StateId next;
    uint32_t count;
};

// How an inserted token counts at the contexts it follows, and how their edges are ordered.
enum class Order : uint8_t {
    kLongest,    // by count, and only the longest context that knew the token counts it (update exclusion, Moffat 1990)
    kFrequency,  // by count, every context counts it
    kRecency,    // by last use, every context notes it
};

// The first edges of a state, in order.
struct Front {
    const Edge* edges;
    uint32_t size;    // edges here, at most kFront
    uint32_t degree;  // edges in all
};

class Automaton {
   public:
    static constexpr uint32_t kFront = 16;
    static constexpr int kCounted = 64;  // contexts that count one token, the longest first: a bound for "a a a a ..."

    explicit Automaton(Order order);
    Automaton(Automaton&&) = default;
    Automaton& operator=(Automaton&&) = default;

    struct Extension {
        StateId last;   // the state of the whole text so far
        bool fresh;     // no other text came this far
        uint32_t seen;  // where the longest context that was known before had last ended; kNone if nowhere
    };
    // Append `token` to the text whose state is `last` (kRoot begins a new text). `end`: the token's position.
    Extension extend(StateId last, Token token, uint32_t end);

    // The state after `token`, or kNone.
    StateId follow(StateId state, Token token) const;
    Front front(StateId state) const;
    StateId link(StateId state) const { return states_[state].link; }
    uint32_t length(StateId state) const { return states_[state].length; }
    // length(link(state)), without a look at that state; 0 for the root.
    uint32_t link_length(StateId state) const { return states_[state].link_length; }
    uint32_t end(StateId state) const { return states_[state].end; }
    void prefetch(StateId state) const { __builtin_prefetch(&states_[state]); }

    // Frees a piece of its memory, after which only this may be called; false when all is gone.
    bool release();

    uint32_t num_states() const { return states_.size(); }
    size_t bytes() const;

   private:
    // 32 bytes, two to a cache line. Degree 1 keeps its edge in place; up to kFront edges lie in a run of the pool;
    // more in a table of their own.
    struct State {
        uint32_t length;
        StateId link;
        uint32_t link_length;
        uint32_t end;
        uint32_t degree;
        Edge only;  // degree 1: the edge; degree 2..kFront: `next` is the run's first index; more: the wide table's
                    // index
    };
    struct Wide {
        std::vector<Edge> slots;  // open addressing by token; empty slots have next == kNone
        Edge front[kFront];       // copies of the first edges
    };

    StateId add_state(uint32_t length, StateId link, uint32_t end);
    void set_link(StateId state, StateId link);
    StateId clone(StateId state, uint32_t length, uint32_t end);
    void add_edge(StateId state, Token token, StateId next);
    void redirect(StateId state, Token token, StateId from, StateId to);
    void touch(StateId state, Token token);
    void count(StateId state, Token token);
    const Edge* find(StateId state, Token token) const;
    Edge* run(const State& state) { return &pool_[state.only.next]; }
    const Edge* run(const State& state) const { return &pool_[state.only.next]; }
    uint32_t take_run(uint32_t capacity);
    void widen(State& state, const Edge* edges);
    void insert_wide(Wide& wide, uint32_t degree, Edge edge);
    void note_use(Wide& wide, const Edge& edge);
    static Edge* slot(Wide& wide, Token token);
    void promote(Edge* edges, uint32_t size, uint32_t at) const;

    Order order_;
    Chunked<State> states_;
    Chunked<Edge> pool_;
    std::vector<uint32_t> free_runs_[4];  // runs of 2, 4, 8, 16
    std::vector<std::unique_ptr<Wide>> wide_;
    size_t wide_bytes_ = 0;
};

}  // namespace ngram
