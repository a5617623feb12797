// All requests, the text they share, and one call per step for the whole batch. Thread-safe: one lock.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "library.hpp"
#include "session.hpp"
#include "tree.hpp"

namespace ngram {

using Handle = int64_t;

struct Stats {
    uint64_t tokens, bytes, generations, evicted_generations, requests, corpora, corpus_tokens;
};

class Index {
  public:
    Index(const Settings& settings, uint64_t capacity, uint32_t generations);

    Handle start(const std::string& name_space, const Token* prompt, size_t count);
    // Request i takes its counts[i] tokens, which lie one request after the other, and gets a draft of at most
    // limits[i] nodes. Throws std::out_of_range for an unknown handle, before anything is changed.
    void step(const Handle* handles, const int32_t* counts, const int32_t* limits, size_t num_requests,
              const Token* tokens, std::vector<std::vector<DraftNode>>& drafts);
    // The last tokens of a request, which is forgotten then.
    void stop(Handle handle, const Token* tokens, size_t count);

    void add_corpus(const std::string& name, std::shared_ptr<const Corpus> corpus);
    bool remove_corpus(const std::string& name);
    Stats stats() const;
    Order order() const { return settings_.order; }

  private:
    using Sessions = std::unordered_map<Handle, std::unique_ptr<Session>>;

    bool drain(Session& session, size_t& budget);
    void finish_ended(size_t budget);
    Sessions::iterator find(Handle handle);

    const Settings settings_;
    mutable std::mutex mutex_;
    Library library_;
    Experience experience_;
    TreeGrower grower_;
    Sessions sessions_;
    std::deque<std::unique_ptr<Session>> ended_;  // whose very long prompts are still being entered
    Handle num_started_ = 0;
};

}  // namespace ngram
