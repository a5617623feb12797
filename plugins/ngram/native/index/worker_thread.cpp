#include "index/worker_thread.hpp"

#include <unistd.h>

#include <chrono>
#include <utility>

namespace ngram {

namespace {
constexpr std::chrono::milliseconds kMaxSpin{1};  // after wake(), before the worker sleeps again
}

WorkerThread::WorkerThread() : process_(getpid()), thread_([this] { main(); }) {}

WorkerThread::~WorkerThread() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        is_stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
}

bool WorkerThread::is_alive() const { return getpid() == process_; }

void WorkerThread::wake() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        is_woken_ = true;
    }
    wake_.notify_one();
}

void WorkerThread::parallel_for(size_t num_blocks, const Work& work) {
    work_ = &work;
    num_blocks_ = num_blocks;
    unfinished_.store(num_blocks, std::memory_order_relaxed);
    {
        std::lock_guard<std::mutex> lock(mutex_);
        is_woken_ = false;
        unclaimed_.store(num_blocks, std::memory_order_release);
    }
    wake_.notify_one();
    run_blocks(0);
    while (unfinished_.load(std::memory_order_acquire) > 0) std::this_thread::yield();
    std::exception_ptr error = errors_[0] != nullptr ? errors_[0] : errors_[1];
    errors_[0] = errors_[1] = nullptr;
    if (error != nullptr) std::rethrow_exception(error);
}

void WorkerThread::main() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
        wake_.wait(lock,
                   [this] { return is_stopping_ || is_woken_ || unclaimed_.load(std::memory_order_relaxed) > 0; });
        if (is_stopping_) return;
        bool is_woken = std::exchange(is_woken_, false);
        lock.unlock();
        if (is_woken) spin_for_blocks();
        run_blocks(1);
        lock.lock();
    }
}

void WorkerThread::spin_for_blocks() {
    auto until = std::chrono::steady_clock::now() + kMaxSpin;
    while (unclaimed_.load(std::memory_order_relaxed) == 0 && std::chrono::steady_clock::now() < until) {
        std::this_thread::yield();
    }
}

void WorkerThread::run_blocks(size_t thread) {
    while (true) {
        size_t left = unclaimed_.load(std::memory_order_relaxed);
        do {
            if (left == 0) return;
        } while (
            !unclaimed_.compare_exchange_weak(left, left - 1, std::memory_order_acquire, std::memory_order_relaxed));
        try {
            (*work_)(num_blocks_ - left, thread);
        } catch (...) {
            errors_[thread] = std::current_exception();
        }
        unfinished_.fetch_sub(1, std::memory_order_release);
    }
}

}  // namespace ngram
