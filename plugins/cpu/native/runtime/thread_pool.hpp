// A small crew of threads that works through the phases of a job together.
//
// A phase is a number of tasks. Each thread has a run of neighbouring ones, so that memory is read in long stretches,
// and takes from the others' runs when its own is empty. The next phase begins when all tasks of this one are done, not
// when all threads have arrived: a thread that the system has put aside holds nobody up unless it holds a task.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace specserve {

inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

class Pool {
   public:
    explicit Pool(int threads);  // the caller's own thread is one of them
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int size() const { return static_cast<int>(workers_.size()) + 1; }

    // One thread's view of a job: hands out the tasks of one phase after the other, in the same order on all threads.
    class Crew {
       public:
        Crew(Pool& pool, int thread) : pool_(pool), thread_(thread) {}
        int thread() const { return thread_; }
        int size() const { return pool_.size(); }

        template <typename Task>
        void share(int tasks, Task&& task) {
            std::atomic<int>* taken = &pool_.taken_[static_cast<size_t>(phase_) * static_cast<size_t>(size())];
            Phase& phase = pool_.phases_[phase_++];
            int mine = 0;
            for (int i = 0; i < size(); ++i) {
                int owner = (thread_ + i) % size();
                int begin = cut(tasks, owner, size()), count = cut(tasks, owner + 1, size()) - begin;
                if (taken[owner].load(std::memory_order_relaxed) >= count) continue;
                for (int t; (t = taken[owner].fetch_add(1, std::memory_order_relaxed)) < count; ++mine) task(begin + t);
            }
            if (mine) phase.done.fetch_add(mine, std::memory_order_acq_rel);
            for (int spins = 0; phase.done.load(std::memory_order_acquire) < tasks; ++spins) pool_.wait_a_little(spins);
        }

        // One phase over [0, count): `task(begin, end)` of neighbouring pieces, a few for each thread.
        template <typename Task>
        void parts(int count, Task&& task) {
            int pieces = num_pieces(count);
            share(pieces, [&](int i) { task(cut(count, i, pieces), cut(count, i + 1, pieces)); });
        }

        // Where this thread's run of `share` begins, if there are tasks; and its run of `parts`.
        int first_task(int tasks) const { return cut(tasks, thread_, size()); }
        int first_of(int count) const { return edge(count, thread_); }
        int end_of(int count) const { return edge(count, thread_ + 1); }

       private:
        static constexpr int kPiecesPerThread = 4;
        // Where piece i of [0, count) begins.
        static int cut(int count, int i, int pieces) { return static_cast<int>(int64_t{count} * i / pieces); }
        // Where a thread's run of `parts` begins.
        int edge(int count, int thread) const {
            int pieces = num_pieces(count);
            return cut(count, cut(pieces, thread, size()), pieces);
        }
        int num_pieces(int count) const { return size() == 1 ? 1 : std::min(count, size() * kPiecesPerThread); }

        Pool& pool_;
        int thread_;
        int phase_ = 0;
    };

    // Runs `job` on every thread that comes in time, at least on this one; returns when its phases are done and nobody
    // is in it any more. One job at a time: callers queue.
    void run(int phases, const std::function<void(Crew&)>& job);

   private:
    struct alignas(64) Phase {
        std::atomic<int> done{0};
    };

    void work(int thread);
    void end();
    void wait_a_little(int spins);

    std::unique_ptr<Phase[]> phases_;
    std::unique_ptr<std::atomic<int>[]> taken_;  // tasks of a phase, by owner
    int num_phases_ = 0;
    const std::function<void(Crew&)>* job_ = nullptr;
    alignas(64) std::atomic<uint32_t> generation_{0};
    alignas(64) std::atomic<int> inside_{0};
    std::atomic<bool> busy_{false}, ends_{false};
    std::vector<std::thread> workers_;
};

}  // namespace specserve
