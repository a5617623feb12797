// The pool: several callers, and phases that need what the phase before left.
#include "runtime/thread_pool.hpp"

#include "stress/stress.hpp"

namespace specserve {

void check_pool(Pool& pool, int jobs, uint32_t seed) {
    Random random(seed);
    for (int job = 0; job < jobs; ++job) {
        int phases = between(random, 1, 6), tasks = between(random, 0, 9);
        std::vector<std::vector<int>> done(static_cast<size_t>(phases), std::vector<int>(static_cast<size_t>(tasks)));
        pool.run(phases, [&](Pool::Crew& crew) {
            for (size_t p = 0; p < done.size(); ++p)
                crew.share(tasks, [&](int t) {
                    size_t task = static_cast<size_t>(t), before = static_cast<size_t>(tasks - 1 - t);
                    done[p][task] = 1 + (p ? done[p - 1][before] : 0);
                });
        });
        for (int count : done.back()) require(count == phases, "a phase began before its time");
    }
}

}  // namespace specserve
