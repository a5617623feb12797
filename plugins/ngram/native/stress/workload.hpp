// Random requests and corpora for the stress program, and what must hold for every draft.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "index/index.hpp"

namespace ngram::stress {

using Drafts = std::vector<std::vector<DraftNode>>;
using Random = std::minstd_rand;

constexpr uint32_t kMaxDepth = 12;
constexpr int32_t kMaxLimit = 24;  // nodes of a draft
constexpr uint32_t kThreads = 2;   // of an index
constexpr size_t kLargeBatch = 100;
static_assert(kLargeBatch > Index::kParallelDrafts);

// Aborts with the message unless `condition` holds.
void require(bool condition, const char* message);
bool are_equal(const Drafts& a, const Drafts& b);
// 0..bound - 1.
uint32_t below(Random& random, uint32_t bound);

Settings make_settings(MatchType match_type, bool shared, double min_survival);
// Repeats itself with edits; tokens 0..alphabet - 1.
Text make_text(Random& random, size_t length, uint32_t alphabet);
std::shared_ptr<const Corpus> make_corpus(Random& random, MatchType match_type, uint32_t num_documents);

// The running requests of one caller. A step commits some tokens of each.
class Batch {
   public:
    Batch(Index& index, uint32_t seed) : index_(index), random_(seed) {}

    void start(const std::string& name_space, size_t length, uint32_t alphabet);
    // The first half of the text is the prompt.
    void start(const std::string& name_space, Text text);
    // Checks every draft, and stops requests at the end of their text.
    void step();
    // With the rest of its text, or a part of it.
    void stop(size_t i);
    void stop_all();

    size_t size() const { return requests_.size(); }
    const Drafts& drafts() const { return drafts_; }
    size_t num_nodes() const { return num_nodes_; }
    Random& random() { return random_; }

   private:
    struct Running {
        Handle handle;
        Text text;
        size_t num_sent;  // tokens that the index has
    };

    Index& index_;
    Random random_;
    std::vector<Running> requests_;
    Drafts drafts_;
    size_t num_nodes_ = 0;
};

}  // namespace ngram::stress
