// The thread pool: concurrent callers, and phases that depend on the previous phase.
#include "runtime/thread_pool.hpp"

#include "stress/stress.hpp"

namespace specserve {

void check_thread_pool(ThreadPool& pool, int jobs, uint32_t seed) {
    Random random(seed);
    for (int job = 0; job < jobs; ++job) {
        int phases = between(random, 1, 6), tasks = between(random, 0, 9);
        std::vector<std::vector<int>> counts(static_cast<size_t>(phases), std::vector<int>(static_cast<size_t>(tasks)));
        pool.run(phases, [&](ThreadPool::Team& team) {
            for (size_t p = 0; p < counts.size(); ++p)
                team.parallel_for(tasks, [&](int t) {
                    size_t task = static_cast<size_t>(t), mirrored = static_cast<size_t>(tasks - 1 - t);
                    counts[p][task] = 1 + (p ? counts[p - 1][mirrored] : 0);
                });
        });
        for (int count : counts.back()) require(count == phases, "a phase began before the previous one was done");
    }
}

}  // namespace specserve
