// All requests and the text they share, with one call per step for the whole batch. Thread-safe: one lock.
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

// Tokens that are certain to come next, one request after the other: the drafts begin behind them. All null: none.
struct CertainTokens {
    const Token* tokens = nullptr;
    const int32_t* counts = nullptr;
};

struct Stats {
    uint64_t tokens, bytes, generations, evicted_generations, requests, corpora, corpus_tokens;
};

class Index {
   public:
    static constexpr size_t kParallelDrafts = 64;  // from this many drafts on, a second thread builds some of them

    // `threads`: 1 or 2; how many build the drafts of a large batch. Drafts do not depend on it.
    Index(const Settings& settings, uint64_t capacity, uint32_t generations, uint32_t threads);
    ~Index();

    // Starts a request with `count` prompt tokens.
    Handle start(const std::string& name_space, const Token* prompt, size_t count);
    // Request i commits its counts[i] tokens, which lie in `tokens` one request after the other, and gets a draft of at
    // most limits[i] nodes. All requests commit, in order, before the first draft is built. Throws before anything is
    // changed: std::out_of_range for an unknown handle, std::invalid_argument for one that comes twice.
    void step(const Handle* handles, const int32_t* counts, const int32_t* limits, size_t num_requests,
              const Token* tokens, std::vector<std::vector<DraftNode>>& drafts, CertainTokens certain = {});
    // Commits the last tokens of a request and forgets the handle.
    void stop(Handle handle, const Token* tokens, size_t count);

    // Replaces a corpus of the same name. Requests are matched against it from their next token or draft on.
    void add_corpus(const std::string& name, std::shared_ptr<const Corpus> corpus);
    // False if no corpus has the name.
    bool remove_corpus(const std::string& name);
    Stats stats() const;
    Ranking ranking() const { return ranking_of(settings_.draft.match_type); }

   private:
    using Requests = std::unordered_map<Handle, std::unique_ptr<Request>>;

    // A draft that is to be built.
    struct DraftJob {
        Request* request;
        uint32_t limit;
        std::vector<DraftNode>* draft;
        const Token* certain;
        size_t num_certain;
    };

    std::vector<Request*> find_all(const Handle* handles, size_t num_requests);
    bool add_pending(Request& request, size_t& budget);
    bool commit(Request& request, const Token* tokens, size_t count, size_t& budget);
    void build(const std::vector<DraftJob>& jobs, WorkerThread* worker);
    void build_block(const std::vector<DraftJob>& jobs, size_t begin, size_t end, TreeBuilder& builder);
    WorkerThread* find_worker();
    void forget_dead_worker();
    void add_pending_of_ended(size_t budget);
    Requests::iterator find(Handle handle);

    const Settings settings_;
    mutable std::mutex mutex_;
    SharedText shared_text_;
    GlobalStatistics global_;
    Requests requests_;
    std::deque<std::unique_ptr<Request>> ended_;  // that still have pending tokens
    Handle num_started_ = 0;
    uint64_t num_steps_ = 0;

    TreeBuilder builders_[2];  // of the caller and of the worker
    bool may_have_worker_;
    std::unique_ptr<WorkerThread> worker_;  // from the first large batch on
};

}  // namespace ngram
