#include "index/index.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace ngram {

namespace {
constexpr size_t kPromptTokensPerCall =
    8192;                                     // a few milliseconds; the rest of a longer prompt waits for the next call
constexpr size_t kLastTokens = 256;           // an output that comes whole at its end, and is longer, waits too
constexpr size_t kEndedTokensPerCall = 1024;  // and then nobody waits for it
constexpr size_t kEndedShare = 8;             // but an eighth of all that waits is entered, or it would pile up
constexpr size_t kDraftsForTwo = 64;          // fewer are grown before a second thread is awake
constexpr size_t kBlock = 8;                  // drafts that a thread takes at a time
}  // namespace

Index::Index(const Settings& settings, uint64_t capacity, uint32_t generations, uint32_t threads)
    : settings_(settings), library_(settings.order, capacity, generations),
      may_have_helper_(threads > 1 && std::thread::hardware_concurrency() != 1) {}

Index::~Index() { forget_dead_helper(); }

Handle Index::start(const std::string& name_space, const Token* prompt, size_t count) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto session = std::make_unique<Session>(library_, experience_, settings_, name_space);
    session->backlog.assign(prompt, prompt + count);
    size_t budget = kPromptTokensPerCall;
    drain(*session, budget);
    finish_ended(budget);
    sessions_.emplace(++num_started_, std::move(session));
    return num_started_;
}

// Enters prompt tokens that are left, as far as the budget goes; true when none are left.
bool Index::drain(Session& session, size_t& budget) {
    for (; budget > 0 && session.entered < session.backlog.size(); --budget) {
        session.enter(session.backlog[session.entered++]);
    }
    if (session.entered < session.backlog.size()) return false;
    session.backlog = {};
    session.entered = 0;
    return true;
}

void Index::step(const Handle* handles, const int32_t* counts, const int32_t* limits, size_t num_requests,
                 const Token* tokens, std::vector<std::vector<DraftNode>>& drafts) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Session*> sessions = find_all(handles, num_requests);
    size_t num_drafts = num_requests - static_cast<size_t>(std::count(limits, limits + num_requests, 0));
    Helper* helper = num_drafts < kDraftsForTwo ? nullptr : find_helper();
    if (helper != nullptr) helper->expect();
    std::vector<Growth> growths;
    growths.reserve(num_drafts);
    drafts.resize(num_requests);
    size_t budget = kPromptTokensPerCall;
    for (size_t i = 0; i < num_requests; ++i) {
        Session& session = *sessions[i];
        if (i + 2 < num_requests) sessions[i + 2]->prefetch();
        if (i + 1 < num_requests) sessions[i + 1]->prefetch_places();
        drafts[i].clear();
        if (drain(session, budget)) {
            for (int32_t k = 0; k < counts[i]; ++k) session.append(tokens[k]);
            if (limits[i] > 0) {
                session.settle();
                growths.push_back({&session, static_cast<uint32_t>(limits[i]), &drafts[i]});
            }
        } else {  // what was decided follows the prompt
            session.backlog.insert(session.backlog.end(), tokens, tokens + counts[i]);
        }
        tokens += counts[i];
    }
    for (const Growth& growth : growths) growth.session->list_sources();
    grow(growths, helper);
    finish_ended(budget);
}

std::vector<Session*> Index::find_all(const Handle* handles, size_t num_requests) {
    ++num_steps_;
    std::vector<Session*> sessions(num_requests);
    for (size_t i = 0; i < num_requests; ++i) {
        sessions[i] = find(handles[i])->second.get();
        if (std::exchange(sessions[i]->last_step, num_steps_) == num_steps_) {
            throw std::invalid_argument("a request comes once in a step; the handle " + std::to_string(handles[i]) +
                                        " came twice");
        }
    }
    return sessions;
}

// Null where one thread has to do.
Helper* Index::find_helper() {
    forget_dead_helper();
    if (helper_ == nullptr && may_have_helper_) {
        try {
            helper_ = std::make_unique<Helper>();
        } catch (const std::system_error&) {
            may_have_helper_ = false;
        }
    }
    return helper_.get();
}

void Index::forget_dead_helper() {
    if (helper_ != nullptr && !helper_->is_alive()) helper_.release();
}

// Nobody writes what requests share meanwhile, so a draft is the same whoever grows it, and whenever.
void Index::grow(const std::vector<Growth>& growths, Helper* helper) {
    if (helper == nullptr) return grow_block(growths, 0, growths.size(), growers_[0]);
    helper->share((growths.size() + kBlock - 1) / kBlock, [&](size_t block, size_t worker) {
        size_t begin = block * kBlock;
        grow_block(growths, begin, std::min(begin + kBlock, growths.size()), growers_[worker]);
    });
}

void Index::grow_block(const std::vector<Growth>& growths, size_t begin, size_t end, TreeGrower& grower) {
    for (size_t i = begin; i < end; ++i) {
        if (i + 2 < end) growths[i + 2].session->prefetch();
        if (i + 1 < end) growths[i + 1].session->prefetch_places();
        growths[i].session->draft(grower, growths[i].limit, *growths[i].draft);
    }
}

void Index::finish_ended(size_t budget) {
    size_t waiting = 0;
    for (const auto& session : ended_) waiting += session->backlog.size() - session->entered;
    budget = std::min(budget, std::max(kEndedTokensPerCall, waiting / kEndedShare));
    while (!ended_.empty() && drain(*ended_.front(), budget)) {
        ended_.front()->leave();
        ended_.pop_front();
    }
}

Index::Sessions::iterator Index::find(Handle handle) {
    auto found = sessions_.find(handle);
    if (found == sessions_.end()) {
        throw std::out_of_range("no request has the handle " + std::to_string(handle) +
                                ": it was never started, or was stopped");
    }
    return found;
}

void Index::stop(Handle handle, const Token* tokens, size_t count) {
    std::unique_ptr<Session> session;
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = find(handle);
    session = std::move(found->second);
    sessions_.erase(found);
    size_t budget = kPromptTokensPerCall;
    if (count <= kLastTokens && drain(*session, budget)) {
        for (size_t k = 0; k < count; ++k) session->append(tokens[k]);
        session->leave();
    } else {
        session->backlog.insert(session->backlog.end(), tokens, tokens + count);
        ended_.push_back(std::move(session));
    }
}

void Index::add_corpus(const std::string& name, std::shared_ptr<const Corpus> corpus) {
    std::shared_ptr<const Corpus> replaced;  // freed after the lock
    std::lock_guard<std::mutex> lock(mutex_);
    replaced = library_.add_corpus(name, std::move(corpus));
}

bool Index::remove_corpus(const std::string& name) {
    std::shared_ptr<const Corpus> removed;  // freed after the lock
    std::lock_guard<std::mutex> lock(mutex_);
    removed = library_.remove_corpus(name);
    return removed != nullptr;
}

Stats Index::stats() const {
    std::lock_guard<std::mutex> lock(mutex_);
    Stats stats{library_.num_tokens(),
                library_.bytes(),
                library_.num_generations(),
                library_.num_evicted(),
                sessions_.size(),
                library_.corpora().size(),
                0};
    for (const auto& [handle, session] : sessions_) stats.bytes += session->bytes();
    for (const auto& session : ended_) stats.bytes += session->bytes();
    for (const auto& [name, corpus] : library_.corpora()) {
        stats.bytes += corpus.corpus->bytes();
        stats.corpus_tokens += corpus.corpus->num_tokens();
    }
    return stats;
}

}  // namespace ngram
