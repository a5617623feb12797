// All requests, the text they share, and one call per step for the whole batch. Thread-safe: one lock.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "drafting/tree_builder.hpp"
#include "index/request.hpp"
#include "index/shared_text.hpp"
#include "index/worker_thread.hpp"

namespace ngram {

using Handle = int64_t;

struct Stats {
    uint64_t tokens, bytes, generations, evicted_generations, requests, corpora, corpus_tokens;
};

class Index {
   public:
    // `threads`: 1 or 2; how many grow the drafts of a large batch. Drafts do not depend on it.
    Index(const Settings& settings, uint64_t capacity, uint32_t generations, uint32_t threads);
    ~Index();

    Handle start(const std::string& name_space, const Token* prompt, size_t count);
    // Request i takes its counts[i] tokens, which lie one request after the other, and gets a draft of at most
    // limits[i] nodes: first all requests learn and take their tokens, in order, then all drafts are grown. Throws
    // before anything is changed: std::out_of_range for an unknown handle, std::invalid_argument for one that comes
    // twice.
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

    // A draft that is to be grown.
    struct Growth {
        Session* session;
        uint32_t limit;
        std::vector<DraftNode>* draft;
    };

    std::vector<Session*> find_all(const Handle* handles, size_t num_requests);
    bool drain(Session& session, size_t& budget);
    void grow(const std::vector<Growth>& growths, Helper* helper);
    void grow_block(const std::vector<Growth>& growths, size_t begin, size_t end, TreeGrower& grower);
    Helper* find_helper();
    void forget_dead_helper();
    void finish_ended(size_t budget);
    Sessions::iterator find(Handle handle);

    const Settings settings_;
    mutable std::mutex mutex_;
    Library library_;
    Experience experience_;
    Sessions sessions_;
    std::deque<std::unique_ptr<Session>> ended_;  // whose very long prompts are still being entered
    Handle num_started_ = 0;
    uint64_t num_steps_ = 0;

    TreeGrower growers_[2];  // of the caller and of the helper
    bool may_have_helper_;
    std::unique_ptr<Helper> helper_;  // from the first large batch on
};

}  // namespace ngram
