#include "runtime/thread_pool.hpp"

#include <chrono>
#include <cstdint>

namespace specserve {

namespace {
constexpr int kJobOpen = 1 << 30;  // flag in active_: pool threads may still enter the job
constexpr int kSpins = 2000;       // pauses before a waiting thread yields its core: some 30 microseconds
// How long a thread without a job polls before it sleeps. Longer than the pause between two steps: a wake-up takes 50
// microseconds.
constexpr auto kPollTime = std::chrono::milliseconds(2);
}  // namespace

ThreadPool::ThreadPool(int threads) {
    try {
        for (int t = 1; t < threads; ++t) threads_.emplace_back([this, t] { worker_loop(t); });
    } catch (...) {  // thread creation failed: join those that run, then rethrow
        stop();
        throw;
    }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
    stopping_.store(true);
    generation_.fetch_add(1);
    generation_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::spin_wait(int spins) {
    if (spins % kSpins == kSpins - 1)
        std::this_thread::yield();
    else
        cpu_pause();
}

void ThreadPool::run(int max_phases, const std::function<void(Team&)>& job) {
    while (busy_.exchange(true, std::memory_order_acquire)) busy_.wait(true);
    if (max_phases > num_phases_) {
        phases_ = std::make_unique<Phase[]>(static_cast<size_t>(max_phases));
        next_task_ = std::make_unique<std::atomic<int>[]>(static_cast<size_t>(max_phases * size()));
        num_phases_ = max_phases;
    }
    for (int p = 0; p < max_phases; ++p) phases_[p].num_done.store(0, std::memory_order_relaxed);
    for (int t = 0; t < max_phases * size(); ++t) next_task_[t].store(0, std::memory_order_relaxed);
    job_ = &job;
    if (!threads_.empty()) {
        active_.store(kJobOpen, std::memory_order_release);
        generation_.fetch_add(1, std::memory_order_release);
        generation_.notify_all();
    }
    Team team(*this, 0);
    job(team);
    if (!threads_.empty()) {
        active_.fetch_and(~kJobOpen, std::memory_order_acq_rel);
        for (int spins = 0; active_.load(std::memory_order_acquire) != 0; ++spins) spin_wait(spins);
    }
    busy_.store(false, std::memory_order_release);
    busy_.notify_one();
}

void ThreadPool::worker_loop(int thread_index) {
    uint32_t seen = 0;
    for (;;) {
        auto sleep_at = std::chrono::steady_clock::now() + kPollTime;
        for (int spins = 0; generation_.load(std::memory_order_acquire) == seen; ++spins) {
            if (spins < kSpins) {
                cpu_pause();
                continue;
            }
            std::this_thread::yield();
            if (std::chrono::steady_clock::now() > sleep_at) break;
        }
        generation_.wait(seen, std::memory_order_acquire);
        if (stopping_.load()) return;
        seen = generation_.load(std::memory_order_acquire);
        int active = active_.load(std::memory_order_acquire);
        while ((active & kJobOpen) && !active_.compare_exchange_weak(active, active + 1, std::memory_order_acq_rel)) {}
        if (!(active & kJobOpen)) continue;
        Team team(*this, thread_index);
        (*job_)(team);
        active_.fetch_sub(1, std::memory_order_acq_rel);
    }
}

}  // namespace specserve
