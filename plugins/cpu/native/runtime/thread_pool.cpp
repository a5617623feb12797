#include "runtime/thread_pool.hpp"

#include <chrono>
#include <cstdint>

namespace specserve {

namespace {
constexpr int kOpen = 1 << 30;  // threads may enter the job; the rest of the number counts those inside
constexpr int kSpins = 2000;    // before a waiting thread lets others have its core: some 30 microseconds
constexpr auto kAwake = std::chrono::milliseconds(2);  // without a job before a thread sleeps: longer than what lies
                                                       // between two steps, for to wake it takes 50 microseconds
}  // namespace

Pool::Pool(int threads) {
    try {
        for (int t = 1; t < threads; ++t) workers_.emplace_back([this, t] { work(t); });
    } catch (...) {  // the system has no more threads; those that run must end before the exception goes on
        end();
        throw;
    }
}

Pool::~Pool() { end(); }

void Pool::end() {
    ends_.store(true);
    generation_.fetch_add(1);
    generation_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void Pool::wait_a_little(int spins) {
    if (spins % kSpins == kSpins - 1)
        std::this_thread::yield();
    else
        relax();
}

void Pool::run(int phases, const std::function<void(Crew&)>& job) {
    while (busy_.exchange(true, std::memory_order_acquire)) busy_.wait(true);
    if (phases > num_phases_) {
        phases_ = std::make_unique<Phase[]>(static_cast<size_t>(phases));
        taken_ = std::make_unique<std::atomic<int>[]>(static_cast<size_t>(phases * size()));
        num_phases_ = phases;
    }
    for (int p = 0; p < phases; ++p) phases_[p].done.store(0, std::memory_order_relaxed);
    for (int t = 0; t < phases * size(); ++t) taken_[t].store(0, std::memory_order_relaxed);
    job_ = &job;
    if (!workers_.empty()) {
        inside_.store(kOpen, std::memory_order_release);
        generation_.fetch_add(1, std::memory_order_release);
        generation_.notify_all();
    }
    Crew crew(*this, 0);
    job(crew);
    if (!workers_.empty()) {
        inside_.fetch_and(~kOpen, std::memory_order_acq_rel);
        for (int spins = 0; inside_.load(std::memory_order_acquire) != 0; ++spins) wait_a_little(spins);
    }
    busy_.store(false, std::memory_order_release);
    busy_.notify_one();
}

void Pool::work(int thread) {
    uint32_t seen = 0;
    for (;;) {
        auto asleep_at = std::chrono::steady_clock::now() + kAwake;
        for (int spins = 0; generation_.load(std::memory_order_acquire) == seen; ++spins) {
            if (spins < kSpins) {
                relax();
                continue;
            }
            std::this_thread::yield();
            if (std::chrono::steady_clock::now() > asleep_at) break;
        }
        generation_.wait(seen, std::memory_order_acquire);
        if (ends_.load()) return;
        seen = generation_.load(std::memory_order_acquire);
        int now = inside_.load(std::memory_order_acquire);
        while ((now & kOpen) && !inside_.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel)) {}
        if (!(now & kOpen)) continue;
        Crew crew(*this, thread);
        (*job_)(crew);
        inside_.fetch_sub(1, std::memory_order_acq_rel);
    }
}

}  // namespace specserve
