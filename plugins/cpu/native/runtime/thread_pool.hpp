// A thread pool that runs one job at a time; a job is a sequence of `parallel_for` phases.
//
// Each thread starts with its own contiguous range of a phase's tasks, so that it reads memory sequentially, and steals
// from the other ranges when its own is empty. The next phase begins when all tasks of this one are done, not when all
// threads have arrived: a preempted thread delays the others only while it holds a task.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace specserve {

inline void cpu_pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");  // takes about as long; the hint `yield` takes no time on most processors
#endif
}

class ThreadPool {
   public:
    explicit ThreadPool(int threads);  // including the calling thread
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int size() const { return static_cast<int>(threads_.size()) + 1; }

    // One thread's handle on a running job. All threads make the same sequence of `parallel_for` calls.
    class Team {
       public:
        Team(ThreadPool& pool, int thread_index) : pool_(pool), thread_index_(thread_index) {}
        int thread_index() const { return thread_index_; }
        int size() const { return pool_.size(); }

        // One phase: calls `task(i)` once for every i in [0, num_tasks).
        template <typename Task>
        void parallel_for(int num_tasks, Task&& task) {
            std::atomic<int>* next_task = &pool_.next_task_[static_cast<size_t>(phase_) * static_cast<size_t>(size())];
            Phase& phase = pool_.phases_[phase_++];
            int num_done = 0;
            for (int i = 0; i < size(); ++i) {
                int owner = (thread_index_ + i) % size();
                int begin = split_point(num_tasks, owner, size());
                int count = split_point(num_tasks, owner + 1, size()) - begin;
                if (next_task[owner].load(std::memory_order_relaxed) >= count) continue;
                for (int t; (t = next_task[owner].fetch_add(1, std::memory_order_relaxed)) < count; ++num_done)
                    task(begin + t);
            }
            if (num_done) phase.num_done.fetch_add(num_done, std::memory_order_acq_rel);
            for (int spins = 0; phase.num_done.load(std::memory_order_acquire) < num_tasks; ++spins) spin_wait(spins);
        }

        // One phase over [0, count): calls `task(begin, end)` on contiguous ranges, a few per thread.
        template <typename Task>
        void parallel_for_ranges(int count, Task&& task) {
            int ranges = num_ranges(count);
            parallel_for(ranges,
                         [&](int i) { task(split_point(count, i, ranges), split_point(count, i + 1, ranges)); });
        }

        // The first of this thread's own tasks in `parallel_for`.
        int first_task(int num_tasks) const { return split_point(num_tasks, thread_index_, size()); }
        // The indices that this thread's own tasks cover in `parallel_for_ranges`.
        int range_begin(int count) const { return thread_begin(count, thread_index_); }
        int range_end(int count) const { return thread_begin(count, thread_index_ + 1); }

       private:
        static constexpr int kRangesPerThread = 4;
        // Where part i of [0, count) begins when it is split into `parts`.
        static int split_point(int count, int i, int parts) { return static_cast<int>(int64_t{count} * i / parts); }
        int thread_begin(int count, int thread) const {
            int ranges = num_ranges(count);
            return split_point(count, split_point(ranges, thread, size()), ranges);
        }
        int num_ranges(int count) const { return size() == 1 ? 1 : std::min(count, size() * kRangesPerThread); }

        ThreadPool& pool_;
        int thread_index_;
        int phase_ = 0;
    };

    // Runs `job` on the calling thread and on every pool thread that wakes in time; returns when no thread is in it any
    // more. max_phases: an upper bound of its `parallel_for` calls. Concurrent callers run one after the other.
    void run(int max_phases, const std::function<void(Team&)>& job);

   private:
    struct alignas(64) Phase {
        std::atomic<int> num_done{0};
    };

    void worker_loop(int thread_index);
    void stop();
    static void spin_wait(int spins);

    std::unique_ptr<Phase[]> phases_;
    std::unique_ptr<std::atomic<int>[]> next_task_;  // [phase][thread]: relative to the thread's first task
    int num_phases_ = 0;
    const std::function<void(Team&)>* job_ = nullptr;
    alignas(64) std::atomic<uint32_t> generation_{0};
    alignas(64) std::atomic<int> active_{0};  // kJobOpen, and how many pool threads are in the job
    std::atomic<bool> busy_{false}, stopping_{false};
    std::vector<std::thread> threads_;
};

}  // namespace specserve
