#include "pool.hpp"

#include <cstdint>

namespace specserve {

namespace {
constexpr int kOpen = 1 << 30;      // threads may enter the job; the rest of the number counts those inside
constexpr int kSpins = 4000;        // before a thread without work sleeps: some 50 microseconds
constexpr int kSpinsOfWait = 2000;  // before a thread that waits for a task of others lets them have its core
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
    if (spins % kSpinsOfWait == kSpinsOfWait - 1)
        std::this_thread::yield();
    else
        relax();
}

void Pool::run(int phases, const std::function<void(Crew&)>& job) {
    while (busy_.exchange(true, std::memory_order_acquire)) busy_.wait(true);
    if (phases > num_phases_) {
        phases_ = std::make_unique<Phase[]>(static_cast<size_t>(phases));
        num_phases_ = phases;
    }
    for (int p = 0; p < phases; ++p) {
        phases_[p].next.store(0, std::memory_order_relaxed);
        phases_[p].done.store(0, std::memory_order_relaxed);
    }
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
        for (int spins = 0; spins < kSpins && generation_.load(std::memory_order_acquire) == seen; ++spins) relax();
        generation_.wait(seen, std::memory_order_acquire);
        if (ends_.load()) return;
        seen = generation_.load(std::memory_order_acquire);
        int now = inside_.load(std::memory_order_acquire);
        while ((now & kOpen) && !inside_.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel)) {
        }
        if (!(now & kOpen)) continue;
        Crew crew(*this, thread);
        (*job_)(crew);
        inside_.fetch_sub(1, std::memory_order_acq_rel);
    }
}

}  // namespace specserve
