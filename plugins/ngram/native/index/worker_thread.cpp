#include "index/worker_thread.hpp"

#include <unistd.h>

#include <chrono>
#include <utility>

namespace ngram {

namespace {
constexpr std::chrono::milliseconds kPatience{1};  // for a loop that is expected, before the helper sleeps again
}

Helper::Helper() : process_(getpid()), thread_([this] { serve(); }) {}

Helper::~Helper() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        over_ = true;
    }
    wake_.notify_one();
    thread_.join();
}

bool Helper::is_alive() const { return getpid() == process_; }

void Helper::expect() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        expected_ = true;
    }
    wake_.notify_one();
}

void Helper::share(size_t num_blocks, const Work& work) {
    work_ = &work;
    num_blocks_ = num_blocks;
    unfinished_.store(num_blocks, std::memory_order_relaxed);
    {
        std::lock_guard<std::mutex> lock(mutex_);
        expected_ = false;
        left_.store(num_blocks, std::memory_order_release);
    }
    wake_.notify_one();
    run(0);
    while (unfinished_.load(std::memory_order_acquire) > 0) std::this_thread::yield();
    std::exception_ptr error = errors_[0] != nullptr ? errors_[0] : errors_[1];
    errors_[0] = errors_[1] = nullptr;
    if (error != nullptr) std::rethrow_exception(error);
}

void Helper::serve() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
        wake_.wait(lock, [this] { return over_ || expected_ || left_.load(std::memory_order_relaxed) > 0; });
        if (over_) return;
        bool expected = std::exchange(expected_, false);
        lock.unlock();
        if (expected) await_loop();
        run(1);
        lock.lock();
    }
}

void Helper::await_loop() {
    auto until = std::chrono::steady_clock::now() + kPatience;
    while (left_.load(std::memory_order_relaxed) == 0 && std::chrono::steady_clock::now() < until)
        std::this_thread::yield();
}

void Helper::run(size_t worker) {
    while (true) {
        size_t left = left_.load(std::memory_order_relaxed);
        do {
            if (left == 0) return;
        } while (!left_.compare_exchange_weak(left, left - 1, std::memory_order_acquire, std::memory_order_relaxed));
        try {
            (*work_)(num_blocks_ - left, worker);
        } catch (...) {
            errors_[worker] = std::current_exception();
        }
        unfinished_.fetch_sub(1, std::memory_order_release);
    }
}

}  // namespace ngram
