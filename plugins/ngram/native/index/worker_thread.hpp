// A second thread for the parallel loops of its owner.
//
// Blocks of a loop are claimed one by one. The caller can run every block itself and waits only for those that the
// worker has claimed, so a worker that is scheduled late delays nothing. Knows nothing about what the blocks compute.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace ngram {

class WorkerThread {
   public:
    // thread 0: the caller; 1: the worker.
    using Work = std::function<void(size_t block, size_t thread)>;

    // Throws std::system_error if no thread can be created.
    WorkerThread();
    ~WorkerThread();
    WorkerThread(const WorkerThread&) = delete;
    WorkerThread& operator=(const WorkerThread&) = delete;

    // False in a fork of the process, which does not have the thread: nothing else may be called there.
    bool is_alive() const;
    // Wakes the worker for a loop that follows soon: waking up can take as long as the loop.
    void wake();
    // Calls work(block, thread) once for each block < num_blocks and returns when all are done. An exception is
    // rethrown after all other blocks. One call at a time.
    void parallel_for(size_t num_blocks, const Work& work);

   private:
    void main();
    void spin_for_blocks();
    void run_blocks(size_t thread);

    // Written by parallel_for() while no block is unclaimed, read by threads that have claimed one.
    const Work* work_ = nullptr;
    size_t num_blocks_ = 0;
    std::exception_ptr errors_[2];

    std::atomic<size_t> unclaimed_{0};
    std::atomic<size_t> unfinished_{0};
    std::mutex mutex_;
    std::condition_variable wake_;
    bool is_woken_ = false, is_stopping_ = false;  // guarded by mutex_
    const int process_;
    std::thread thread_;  // last: it uses all of the above
};

}  // namespace ngram
