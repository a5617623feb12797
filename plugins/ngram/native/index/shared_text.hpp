// The text that requests share: per namespace, in generations, of which the oldest is evicted as a whole.
//
// A namespace appends to its newest generation; one that is full is closed and another is begun. When all namespaces
// together hold more than the capacity, the oldest generation of any of them is evicted. Its memory is freed a little
// with every token that is added, so that no step waits for it. Corpora belong to every namespace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "automaton/suffix_automaton.hpp"

namespace ngram {

// Documents that requests are matched against. Built by itself, then frozen and added to the shared text.
class Corpus {
   public:
    explicit Corpus(Ranking ranking) : ranking_(ranking), automaton_(ranking) {}
    Corpus(Corpus&&) = default;
    // One document.
    void add(const Token* tokens, size_t count);
    void freeze() { is_frozen_ = true; }
    bool is_frozen() const { return is_frozen_; }
    Ranking ranking() const { return ranking_; }
    const SuffixAutomaton& automaton() const { return automaton_; }
    uint64_t num_tokens() const { return num_tokens_; }
    size_t bytes() const { return automaton_.bytes(); }

   private:
    Ranking ranking_;
    bool is_frozen_ = false;
    SuffixAutomaton automaton_;
    uint64_t num_tokens_ = 0;
};

struct Namespace;

struct Generation {
    uint64_t id;
    Namespace* owner;
    SuffixAutomaton automaton;
    uint64_t num_tokens = 0;
};

struct Namespace {
    std::string name;
    std::vector<Generation*> generations;  // newest first; that one is appended to until it is full
    bool is_open = false;                  // whether the newest is not full
    uint64_t version = 1;                  // changes whenever a generation or a corpus is added or removed
};

struct CorpusEntry {
    uint64_t id;  // a corpus that is added again is another one
    std::shared_ptr<const Corpus> corpus;
};

class SharedText {
   public:
    static constexpr uint64_t kMinCharge = 64;  // tokens that a generation counts for however few it holds

    // `capacity` in tokens; a generation is full with capacity / generations of them.
    SharedText(Ranking ranking, uint64_t capacity, uint32_t generations);

    // Created on demand; freed when it is not held outside and has no text.
    std::shared_ptr<Namespace> acquire(const std::string& name);
    void release(std::shared_ptr<Namespace> name_space);
    // The generation that the namespace appends to; begun if there is none. May evict old ones.
    Generation& current(Namespace& name_space);
    // `generation` has a token more. May close it and evict old ones, itself too, which changes their namespaces'
    // versions.
    void count_token(Generation& generation);

    // Both return the corpus that was replaced or removed, for the caller to free; null if there was none.
    std::shared_ptr<const Corpus> add_corpus(const std::string& name, std::shared_ptr<const Corpus> corpus);
    std::shared_ptr<const Corpus> remove_corpus(const std::string& name);
    const std::map<std::string, CorpusEntry>& corpora() const { return corpora_; }

    uint64_t num_tokens() const { return num_tokens_; }
    size_t num_generations() const { return generations_.size(); }
    uint64_t num_evicted() const { return num_evicted_; }
    size_t bytes() const;

   private:
    void evict();
    void free_evicted();
    void erase_if_unused(const std::string& name);
    void bump_versions();

    Ranking ranking_;
    uint64_t capacity_, per_generation_;
    uint64_t num_ids_ = 0, num_evicted_ = 0, num_tokens_ = 0;
    uint64_t charged_ = 0;               // tokens of all generations, at least kMinCharge for each
    std::list<Generation> generations_;  // oldest first
    std::list<Generation> evicted_;      // which are being freed
    std::map<std::string, std::shared_ptr<Namespace>> namespaces_;
    std::map<std::string, CorpusEntry> corpora_;
};

}  // namespace ngram
