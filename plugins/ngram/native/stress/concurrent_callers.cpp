#include <atomic>
#include <chrono>
#include <thread>

#include "stress/scenarios.hpp"

namespace ngram::stress {

// Two callers with requests in the same namespaces, one that adds and removes corpora, one that reads the statistics.
void run_concurrent_callers(double seconds, MatchType match_type, size_t num_requests, uint64_t capacity) {
    Index index(make_settings(match_type, true, 0.01), capacity, 5, kThreads);
    std::atomic<bool> is_over{false};
    std::atomic<size_t> num_nodes{0};
    auto serve_requests = [&](uint32_t seed) {
        Batch batch(index, seed);
        while (!is_over) {
            while (batch.size() < num_requests) {
                batch.start(below(batch.random(), 2) ? "a" : "b", below(batch.random(), 150), 30);
            }
            batch.step();
        }
        batch.stop_all();
        num_nodes += batch.num_nodes();
    };
    auto replace_corpora = [&] {
        Random random(5);
        while (!is_over) {
            std::string name(1, static_cast<char>('x' + below(random, 2)));
            index.add_corpus(name, make_corpus(random, match_type, 3));
            if (below(random, 2)) index.remove_corpus(name);
        }
    };
    auto read_stats = [&] {
        while (!is_over) {
            Stats stats = index.stats();
            require(stats.tokens <= capacity && (stats.bytes > 0 || stats.requests == 0), "the figures are wrong");
            std::this_thread::yield();
        }
    };
    std::vector<std::thread> threads;
    threads.emplace_back(serve_requests, 3);
    threads.emplace_back(serve_requests, 4);
    threads.emplace_back(replace_corpora);
    threads.emplace_back(read_stats);
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    is_over = true;
    for (std::thread& thread : threads) thread.join();
    Stats stats = index.stats();
    require(num_nodes > 0 && stats.requests == 0 && stats.evicted_generations > 0, "the callers did nothing");
}

}  // namespace ngram::stress
