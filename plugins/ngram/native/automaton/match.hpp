// Matching a text against an automaton: its longest suffix that the automaton contains, token by token.
#pragma once

#include "automaton/suffix_automaton.hpp"

namespace ngram {

// The last `length` tokens of a text, and the state that contains them.
struct Match {
    StateId state = kRoot;
    uint32_t length = 0;
};

// The longest shorter match that occurs at more positions: the one on the suffix link.
inline Match shorter_match(const SuffixAutomaton& automaton, Match match) {
    return {automaton.suffix_link(match.state), automaton.link_length(match.state)};
}

// The longest match after one more token.
inline Match advance(const SuffixAutomaton& automaton, Match match, Token token) {
    while (true) {
        StateId next = automaton.next(match.state, token);
        if (next != kNone) return {next, match.length + 1};
        if (match.state == kRoot) return {};
        match = shorter_match(automaton, match);
    }
}

// A match from before other texts were added. They may have split its state, of which it then needs the half with the
// shorter contexts.
inline Match after_splits(const SuffixAutomaton& automaton, Match match) {
    while (match.state != kRoot && match.length <= automaton.link_length(match.state)) {
        match.state = automaton.suffix_link(match.state);
    }
    return match;
}

}  // namespace ngram
