// The text that requests share: by namespace, in generations, of which the oldest is dropped whole.
//
// A namespace has a shelf and writes into its newest generation; a full one is closed and a new one begun. When
// all shelves together hold more than the capacity, the oldest generation of any of them goes. It is taken apart
// a little per token that comes, so that no step waits for it. Corpora stand beside every shelf.
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

// Documents that are only read. Built alone, then given to a library.
class Corpus {
   public:
    explicit Corpus(Order order) : order_(order), automaton_(order) {}
    Corpus(Corpus&&) = default;
    void add(const Token* tokens, size_t count);
    // Nothing is added any more.
    void shelve() { is_shelved_ = true; }
    bool is_shelved() const { return is_shelved_; }
    Order order() const { return order_; }
    const Automaton& automaton() const { return automaton_; }
    uint64_t num_tokens() const { return num_tokens_; }
    size_t bytes() const { return automaton_.bytes(); }

   private:
    Order order_;
    bool is_shelved_ = false;
    Automaton automaton_;
    uint64_t num_tokens_ = 0;
};

struct Shelf;

struct Generation {
    uint64_t id;
    Shelf* shelf;
    Automaton automaton;
    uint64_t num_tokens = 0;
};

struct Shelf {
    std::string name_space;
    std::vector<Generation*> generations;  // newest first; that one is written into until it is full
    bool is_open = false;                  // is the newest still written into?
    uint64_t version = 1;                  // changes whenever a generation or a corpus comes or goes
};

struct ShelvedCorpus {
    uint64_t id;
    std::shared_ptr<const Corpus> corpus;
};

class Library {
   public:
    Library(Order order, uint64_t capacity, uint32_t generations);

    // The namespace's shelf; it stays as long as somebody holds it or it holds text.
    std::shared_ptr<Shelf> shelf(const std::string& name_space);
    // Somebody holds it no more.
    void leave(std::shared_ptr<Shelf> shelf);
    // The generation that the shelf writes into; begun where there is none. May drop old ones.
    Generation& current(Shelf& shelf);
    // `generation` has taken a token. May close it, and drop old ones, this one too: look at the shelf's version.
    void count(Generation& generation);

    // The corpus that had the name before, or that has it, is for the caller to free; null where there is none.
    std::shared_ptr<const Corpus> add_corpus(const std::string& name, std::shared_ptr<const Corpus> corpus);
    std::shared_ptr<const Corpus> remove_corpus(const std::string& name);
    const std::map<std::string, ShelvedCorpus>& corpora() const { return corpora_; }

    uint64_t num_tokens() const { return num_tokens_; }
    size_t num_generations() const { return generations_.size(); }
    uint64_t num_evicted() const { return num_evicted_; }
    size_t bytes() const;

   private:
    void fit();
    void tidy();
    void forget_if_unused(const std::string& name_space);
    void tell_all();

    Order order_;
    uint64_t capacity_, per_generation_;
    uint64_t num_begun_ = 0, num_evicted_ = 0, num_tokens_ = 0;
    uint64_t charged_ = 0;               // tokens, an almost empty generation counting for a few
    std::list<Generation> generations_;  // oldest first
    std::list<Generation> dropped_;
    std::map<std::string, std::shared_ptr<Shelf>> shelves_;
    std::map<std::string, ShelvedCorpus> corpora_;
};

}  // namespace ngram
