// What all objects of one engine share: the kernels of one instruction set and the thread pool.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "runtime/isa.hpp"
#include "runtime/thread_pool.hpp"

namespace specserve {

constexpr int kMaxThreads = 1024;

struct Machine {
    Machine(const std::string& instruction_set, int threads) : kernels(kernels_for(instruction_set)) {
        if (threads < 1 || threads > kMaxThreads)
            throw std::invalid_argument("threads must be in [1, " + std::to_string(kMaxThreads) + "]; got " +
                                        std::to_string(threads) + ".");
        pool = std::make_shared<ThreadPool>(threads);
    }
    Kernels kernels;
    std::shared_ptr<ThreadPool> pool;
};

}  // namespace specserve
