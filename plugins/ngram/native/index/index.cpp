#include "index/index.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace ngram {

namespace {
// Bounds of the tokens that one call adds to the text, a few milliseconds; those of longer prompts stay pending.
constexpr size_t kTokensPerCall = 8192;
constexpr size_t kStopTokensPerCall = 256;    // last tokens of a request that stops; with more, all become pending
constexpr size_t kEndedTokensPerCall = 1024;  // of requests that have ended, for which nobody waits,
constexpr size_t kEndedShare = 8;             // or an eighth of what they have pending, if that is more
constexpr size_t kBlock = 8;                  // drafts that a thread claims at a time
}  // namespace

Index::Index(const Settings& settings, uint64_t capacity, uint32_t generations, uint32_t threads)
    : settings_(settings), shared_text_(ranking_of(settings.draft.match_type), capacity, generations),
      may_have_worker_(threads > 1 && std::thread::hardware_concurrency() != 1) {}

Index::~Index() { forget_dead_worker(); }

Handle Index::start(const std::string& name_space, const Token* prompt, size_t count) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto request = std::make_unique<Request>(shared_text_, global_, settings_, name_space);
    request->pending.assign(prompt, prompt + count);
    size_t budget = kTokensPerCall;
    add_pending(*request, budget);
    add_pending_of_ended(budget);
    requests_.emplace(++num_started_, std::move(request));
    return num_started_;
}

// Adds pending tokens to the request's text within the budget; true when none are left.
bool Index::add_pending(Request& request, size_t& budget) {
    for (; budget > 0 && request.num_added < request.pending.size(); --budget) {
        request.add_to_text(request.pending[request.num_added++]);
    }
    if (request.num_added < request.pending.size()) return false;
    request.pending = {};
    request.num_added = 0;
    return true;
}

void Index::step(const Handle* handles, const int32_t* counts, const int32_t* limits, size_t num_requests,
                 const Token* tokens, std::vector<std::vector<DraftNode>>& drafts, CertainTokens certain) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Request*> requests = find_all(handles, num_requests);
    size_t num_drafts = num_requests - static_cast<size_t>(std::count(limits, limits + num_requests, 0));
    WorkerThread* worker = num_drafts < kParallelDrafts ? nullptr : find_worker();
    if (worker != nullptr) worker->wake();
    std::vector<DraftJob> jobs;
    jobs.reserve(num_drafts);
    drafts.resize(num_requests);
    size_t budget = kTokensPerCall;
    for (size_t i = 0; i < num_requests; ++i) {
        if (i + 2 < num_requests) requests[i + 2]->prefetch();
        if (i + 1 < num_requests) requests[i + 1]->prefetch_matches();
        drafts[i].clear();
        const Token* certain_tokens = certain.tokens;
        size_t num_certain = certain.counts == nullptr ? 0 : static_cast<size_t>(certain.counts[i]);
        certain.tokens += num_certain;
        bool is_complete = commit(*requests[i], tokens, counts[i], budget);
        tokens += counts[i];
        if (!is_complete || limits[i] == 0) continue;
        requests[i]->update_calibration();
        jobs.push_back({requests[i], static_cast<uint32_t>(limits[i]), &drafts[i], certain_tokens, num_certain});
    }
    for (const DraftJob& job : jobs) job.request->update_sources();
    build(jobs, worker);
    add_pending_of_ended(budget);
}

// Commits generated tokens, which wait behind the prompt while that is pending; true when nothing is pending.
bool Index::commit(Request& request, const Token* tokens, size_t count, size_t& budget) {
    if (!add_pending(request, budget)) {
        request.pending.insert(request.pending.end(), tokens, tokens + count);
        return false;
    }
    for (size_t k = 0; k < count; ++k) request.commit(tokens[k]);
    return true;
}

std::vector<Request*> Index::find_all(const Handle* handles, size_t num_requests) {
    ++num_steps_;
    std::vector<Request*> requests(num_requests);
    for (size_t i = 0; i < num_requests; ++i) {
        requests[i] = find(handles[i])->second.get();
        if (std::exchange(requests[i]->last_step, num_steps_) == num_steps_) {
            throw std::invalid_argument("a request comes once in a step; the handle " + std::to_string(handles[i]) +
                                        " came twice");
        }
    }
    return requests;
}

// Null if there is to be one thread, or the system has no other.
WorkerThread* Index::find_worker() {
    forget_dead_worker();
    if (worker_ == nullptr && may_have_worker_) {
        try {
            worker_ = std::make_unique<WorkerThread>();
        } catch (const std::system_error&) {
            may_have_worker_ = false;
        }
    }
    return worker_.get();
}

// In a fork of the process: its destructor would wait for a thread that does not exist.
void Index::forget_dead_worker() {
    if (worker_ != nullptr && !worker_->is_alive()) worker_.release();
}

// What requests share is not written meanwhile, so a draft does not depend on the thread or the order.
void Index::build(const std::vector<DraftJob>& jobs, WorkerThread* worker) {
    if (worker == nullptr) return build_block(jobs, 0, jobs.size(), builders_[0]);
    worker->parallel_for((jobs.size() + kBlock - 1) / kBlock, [&](size_t block, size_t thread) {
        size_t begin = block * kBlock;
        build_block(jobs, begin, std::min(begin + kBlock, jobs.size()), builders_[thread]);
    });
}

void Index::build_block(const std::vector<DraftJob>& jobs, size_t begin, size_t end, TreeBuilder& builder) {
    for (size_t i = begin; i < end; ++i) {
        if (i + 2 < end) jobs[i + 2].request->prefetch();
        if (i + 1 < end) jobs[i + 1].request->prefetch_matches();
        const DraftJob& job = jobs[i];
        job.request->draft(builder, job.limit, *job.draft, job.certain, job.num_certain);
    }
}

void Index::add_pending_of_ended(size_t budget) {
    size_t num_pending = 0;
    for (const auto& request : ended_) num_pending += request->pending.size() - request->num_added;
    budget = std::min(budget, std::max(kEndedTokensPerCall, num_pending / kEndedShare));
    while (!ended_.empty() && add_pending(*ended_.front(), budget)) {
        ended_.front()->release();
        ended_.pop_front();
    }
}

Index::Requests::iterator Index::find(Handle handle) {
    auto found = requests_.find(handle);
    if (found == requests_.end()) {
        throw std::out_of_range("no request has the handle " + std::to_string(handle) +
                                ": it was never started, or was stopped");
    }
    return found;
}

void Index::stop(Handle handle, const Token* tokens, size_t count) {
    std::unique_ptr<Request> request;  // freed after the lock
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = find(handle);
    request = std::move(found->second);
    requests_.erase(found);
    size_t budget = kTokensPerCall;
    if (count > kStopTokensPerCall) {
        request->pending.insert(request->pending.end(), tokens, tokens + count);
    } else if (commit(*request, tokens, count, budget)) {
        return request->release();
    }
    ended_.push_back(std::move(request));
}

void Index::add_corpus(const std::string& name, std::shared_ptr<const Corpus> corpus) {
    std::shared_ptr<const Corpus> replaced;  // freed after the lock
    std::lock_guard<std::mutex> lock(mutex_);
    replaced = shared_text_.add_corpus(name, std::move(corpus));
}

bool Index::remove_corpus(const std::string& name) {
    std::shared_ptr<const Corpus> removed;  // freed after the lock
    std::lock_guard<std::mutex> lock(mutex_);
    removed = shared_text_.remove_corpus(name);
    return removed != nullptr;
}

Stats Index::stats() const {
    std::lock_guard<std::mutex> lock(mutex_);
    Stats stats{shared_text_.num_tokens(),
                shared_text_.bytes(),
                shared_text_.num_generations(),
                shared_text_.num_evicted(),
                requests_.size(),
                shared_text_.corpora().size(),
                0};
    for (const auto& [handle, request] : requests_) stats.bytes += request->bytes();
    for (const auto& request : ended_) stats.bytes += request->bytes();
    for (const auto& [name, entry] : shared_text_.corpora()) {
        stats.bytes += entry.corpus->bytes();
        stats.corpus_tokens += entry.corpus->num_tokens();
    }
    return stats;
}

}  // namespace ngram
