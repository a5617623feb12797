#include <stdexcept>

#include "stress/scenarios.hpp"

namespace ngram::stress {

// Requests in three namespaces start and stop, and corpora are added, replaced and removed.
void run_small_batches(MatchType match_type, bool shared, uint64_t capacity, uint32_t alphabet, double min_survival) {
    Index index(make_settings(match_type, shared, min_survival), capacity, 4, kThreads);
    Batch batch(index, 1);
    Random& random = batch.random();
    for (uint32_t round = 0; round < 120; ++round) {
        while (batch.size() < 4) {
            batch.start(std::string(1, static_cast<char>('a' + below(random, 3))), below(random, 300), alphabet);
        }
        if (round % 16 == 3) index.add_corpus("one", make_corpus(random, match_type, 4));
        if (round % 16 == 7) index.add_corpus("two", make_corpus(random, match_type, 2));
        if (round % 16 == 12) index.remove_corpus("one");
        batch.step();
        Stats stats = index.stats();
        require(stats.tokens <= capacity && (shared || stats.tokens == 0), "the index holds more than its capacity");
        require(stats.requests == batch.size(), "requests are miscounted");
    }
    batch.stop_all();
    require(batch.num_nodes() > 100, "there were hardly any drafts");
    require(!shared || capacity > 10000 || index.stats().evicted_generations > 0, "nothing was evicted");
}

// States with hash tables are cloned: a token has many followers, first after one token only, then after others.
// Uniform text over 300 tokens has hundreds of such states, which are evicted with their generation.
void run_large_degrees(MatchType match_type) {
    Index index(make_settings(match_type, true, 0), 20000, 3, kThreads);
    Batch batch(index, 6);
    Text hubs;
    for (Token before : {1, 3, 1}) {
        for (Token after = 100; after < 150; ++after) hubs.insert(hubs.end(), {before, 2, after, 4 + after % 7});
    }
    batch.start("a", hubs);
    for (int i = 0; i < 100; ++i) batch.step();
    for (int i = 0; i < 6; ++i) {
        Text uniform(10000);
        for (Token& token : uniform) token = static_cast<Token>(below(batch.random(), 300));
        batch.start("b", uniform);
        batch.step();
    }
    batch.stop_all();
    require(index.stats().evicted_generations > 1, "nothing was evicted");
}

// Prompts stay pending for many calls, two requests stop before theirs are added, and one output comes as a whole.
void run_long_prompts() {
    Index index(make_settings(MatchType::kLearned, true, 0.02), 60000, 3, kThreads);
    Batch batch(index, 2);
    batch.start("a", 90000, 300);
    batch.start("b", 80000, 5000);
    batch.start("b", 80000, 50);
    for (int i = 0; i < 3; ++i) batch.step();
    batch.stop(1);
    batch.stop(1);
    Text output = make_text(batch.random(), 3000, 20);
    index.stop(index.start("b", output.data(), 10), output.data() + 10, output.size() - 10);
    for (int i = 0; i < 40; ++i) batch.step();
    Handle unknown = 99;
    int32_t zero = 0;
    Drafts drafts;
    bool is_refused = false;
    try {
        index.step(&unknown, &zero, &zero, 1, nullptr, drafts);
    } catch (const std::out_of_range&) {
        is_refused = true;
    }
    require(is_refused, "an unknown handle is taken");
    batch.stop_all();
    require(index.stats().tokens > 16384, "the prompts are missing");
}

// The same batches with one thread and with two; then indexes that are destroyed right after their first large batch,
// or without one.
void run_large_batches(MatchType match_type, uint64_t capacity) {
    Settings settings = make_settings(match_type, true, 0.01);
    Index serial(settings, capacity, 4, 1), parallel(settings, capacity, 4, kThreads);
    Batch one(serial, 7), two(parallel, 7);
    for (int i = 0; i < 30; ++i) {
        for (Batch* batch : {&one, &two}) {
            while (batch->size() < kLargeBatch) {
                std::string name_space(1, static_cast<char>('a' + below(batch->random(), 3)));
                batch->start(name_space, below(batch->random(), 100), 30);
            }
            batch->step();
        }
        require(are_equal(one.drafts(), two.drafts()), "drafts depend on the number of threads");
    }
    require(one.num_nodes() > 100, "there were hardly any drafts");
    for (int i = 0; i < 50; ++i) {
        Index index(settings, capacity, 4, kThreads);
        Batch batch(index, 8);
        for (size_t k = 0; i % 2 && k < kLargeBatch; ++k) batch.start("a", 4, 3);
        if (i % 2) batch.step();
    }
}

}  // namespace ngram::stress
