// A second thread that shares the loops of its caller.
//
// A loop is handed out block by block. The caller can do every block itself and waits only for blocks that the
// helper has taken: one that the system runs late, or not at all, holds nobody up. Knows nothing about the work.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace ngram {

class Helper {
   public:
    // worker 0: the caller; 1: the helper. An exception is thrown again by share(), after all other blocks.
    using Work = std::function<void(size_t block, size_t worker)>;

    // Throws std::system_error where no thread can be created.
    Helper();
    ~Helper();
    Helper(const Helper&) = delete;
    Helper& operator=(const Helper&) = delete;

    // False in a fork of the process, which does not have the thread: nothing else may be called there.
    bool is_alive() const;
    // A loop comes soon: waking up can take the helper as long as a loop.
    void expect();
    // Calls work(block, worker) once for each block < num_blocks, and returns when all are done. One call at a time.
    void share(size_t num_blocks, const Work& work);

   private:
    void serve();
    void await_loop();
    void run(size_t worker);

    // Written by share() while no block is left, read by whoever has taken a block.
    const Work* work_ = nullptr;
    size_t num_blocks_ = 0;
    std::exception_ptr errors_[2];

    std::atomic<size_t> left_{0};        // blocks that nobody has taken
    std::atomic<size_t> unfinished_{0};  // blocks that are not done
    std::mutex mutex_;
    std::condition_variable wake_;
    bool expected_ = false, over_ = false;  // guarded by mutex_
    const int process_;
    std::thread thread_;  // last: it uses all of the above
};

}  // namespace ngram
