// What every object of an engine shares: the instruction set's functions and the threads.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "runtime/isa.hpp"
#include "runtime/thread_pool.hpp"

namespace specserve {

constexpr int kMostThreads = 1024;

struct Machine {
    Machine(const std::string& instruction_set, int threads) : kernels(kernels_for(instruction_set)) {
        if (threads < 1 || threads > kMostThreads)
            throw std::invalid_argument("threads must be in [1, " + std::to_string(kMostThreads) + "]; got " +
                                        std::to_string(threads) + ".");
        pool = std::make_shared<Pool>(threads);
    }
    Kernels kernels;
    std::shared_ptr<Pool> pool;
};

}  // namespace specserve
