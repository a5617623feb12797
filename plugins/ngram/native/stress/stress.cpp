// The index under load, for the sanitizers: `stress [seconds]`. Needs no Python.
//
// First one thread, the same calls every time: every shape, wide states, evictions, corpora, a prompt that is
// entered over several calls, large batches, whose drafts two threads grow. Then several threads at once on one index.
// Exit status 0: every draft was well formed.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "index/index.hpp"

using namespace ngram;

namespace {

using Drafts = std::vector<std::vector<DraftNode>>;
using Random = std::minstd_rand;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kDepth = 12;
constexpr int32_t kLimit = 24;
constexpr uint32_t kThreads = 2;  // of an index
constexpr size_t kLarge = 100;    // requests, of which the index lets two threads grow the drafts

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "stress: %s\n", what);
    std::abort();
}

bool same(const Drafts& a, const Drafts& b) {
    auto same_node = [](const DraftNode& m, const DraftNode& n) {
        return m.token == n.token && m.parent == n.parent && m.survival == n.survival;
    };
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const auto& m, const auto& n) {
        return std::equal(m.begin(), m.end(), n.begin(), n.end(), same_node);
    });
}

uint32_t below(Random& random, uint32_t bound) { return static_cast<uint32_t>(random() % bound); }

Order order_of(Shape shape) {
    return shape == Shape::kLearned     ? Order::kLongest
           : shape == Shape::kFrequency ? Order::kFrequency
                                        : Order::kRecency;
}

Settings settings(Shape shape, bool shared, double min_survival) {
    return {order_of(shape), shared, {shape, {1, 24, 4, 10}, 2, kDepth, min_survival}};
}

// Repeats itself with edits, over `alphabet` tokens.
Text text(Random& random, size_t length, uint32_t alphabet) {
    Text made;
    while (made.size() < length) {
        if (made.empty() || below(random, 3) == 0) {
            for (uint32_t i = below(random, 12) + 1; i > 0; --i)
                made.push_back(static_cast<Token>(below(random, alphabet)));
        } else {
            uint32_t from = below(random, static_cast<uint32_t>(made.size()));
            for (uint32_t i = from; i < made.size() && i < from + 40; ++i) {
                made.push_back(below(random, 15) ? made[i] : static_cast<Token>(below(random, alphabet)));
            }
        }
    }
    made.resize(length);
    return made;
}

std::shared_ptr<const Corpus> corpus(Random& random, Shape shape, uint32_t documents) {
    Corpus made(order_of(shape));
    for (uint32_t i = 0; i < documents; ++i) {
        Text document = text(random, below(random, 200), 40);
        made.add(document.data(), document.size());
    }
    return std::make_shared<const Corpus>(std::move(made));
}

void check(const std::vector<DraftNode>& draft, int32_t limit) {
    require(draft.size() <= static_cast<size_t>(limit), "a draft is longer than its limit");
    std::vector<uint32_t> depth;
    for (size_t i = 0; i < draft.size(); ++i) {
        const DraftNode& node = draft[i];
        require(node.parent >= -1 && node.parent < static_cast<int32_t>(i), "a child comes before its parent");
        depth.push_back(node.parent < 0 ? 1 : depth[node.parent] + 1);
        require(depth[i] <= kDepth, "a draft is too deep");
        require(node.survival > 0 && node.survival <= 1, "a survival estimate is no probability");
        require(node.parent < 0 || node.survival <= draft[node.parent].survival, "a child survives its parent");
        for (size_t k = 0; k < i; ++k) {
            require(draft[k].parent != node.parent || draft[k].token != node.token, "a node is drafted twice");
        }
    }
}

// Requests of one caller, of which every call takes some tokens of each.
class Batch {
   public:
    Batch(Index& index, uint32_t seed) : index_(index), random_(seed) {}

    void start(const std::string& name_space, size_t length, uint32_t alphabet) {
        start(name_space, text(random_, length, alphabet));
    }

    // The first half is its prompt.
    void start(const std::string& name_space, Text all) {
        size_t prompt = all.size() / 2;
        Handle handle = index_.start(name_space, all.data(), prompt);
        requests_.push_back({handle, std::move(all), prompt});
    }

    void step() {
        std::vector<Handle> handles;
        std::vector<int32_t> counts, limits;
        Text tokens;
        for (Request& r : requests_) {
            auto count = static_cast<int32_t>(std::min<size_t>(below(random_, 5), r.text.size() - r.at));
            handles.push_back(r.handle);
            counts.push_back(count);
            limits.push_back(static_cast<int32_t>(below(random_, kLimit + 1)));
            tokens.insert(tokens.end(), r.text.begin() + r.at, r.text.begin() + r.at + count);
            r.at += count;
        }
        index_.step(handles.data(), counts.data(), limits.data(), handles.size(), tokens.data(), drafts_);
        for (size_t i = 0; i < drafts_.size(); ++i) {
            check(drafts_[i], limits[i]);
            num_nodes_ += drafts_[i].size();
        }
        for (size_t i = requests_.size(); i-- > 0;) {
            if (requests_[i].at == requests_[i].text.size()) stop(i);
        }
    }

    // Some are stopped in the midst of their text.
    void stop(size_t i) {
        Request& r = requests_[i];
        size_t left = std::min<size_t>(below(random_, 30), r.text.size() - r.at);
        index_.stop(r.handle, r.text.data() + r.at, left);
        requests_.erase(requests_.begin() + i);
    }

    void stop_all() {
        while (!requests_.empty()) stop(requests_.size() - 1);
    }

    size_t size() const { return requests_.size(); }
    const Drafts& drafts() const { return drafts_; }
    size_t num_nodes() const { return num_nodes_; }
    Random& random() { return random_; }

   private:
    struct Request {
        Handle handle;
        Text text;
        size_t at;  // the first token that the index does not have
    };

    Index& index_;
    Random random_;
    std::vector<Request> requests_;
    Drafts drafts_;
    size_t num_nodes_ = 0;
};

void run_alone(Shape shape, bool shared, uint64_t capacity, uint32_t alphabet, double min_survival) {
    Index index(settings(shape, shared, min_survival), capacity, 4, kThreads);
    Batch batch(index, 1);
    Random& random = batch.random();
    for (uint32_t round = 0; round < 120; ++round) {
        while (batch.size() < 4)
            batch.start(std::string(1, static_cast<char>('a' + below(random, 3))), below(random, 300), alphabet);
        if (round % 16 == 3) index.add_corpus("one", corpus(random, shape, 4));
        if (round % 16 == 7) index.add_corpus("two", corpus(random, shape, 2));
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

// Tokens with many followers, first only after the same token and then after others: wide states are copied. Random
// text over a middling alphabet has hundreds of them, which are dropped with their generation.
void run_wide_states(Shape shape) {
    Index index(settings(shape, true, 0), 20000, 3, kThreads);
    Batch batch(index, 6);
    Text hubs;
    for (Token before : {1, 3, 1}) {
        for (Token after = 100; after < 150; ++after) hubs.insert(hubs.end(), {before, 2, after, 4 + after % 7});
    }
    batch.start("a", hubs);
    for (int i = 0; i < 100; ++i) batch.step();
    for (int i = 0; i < 6; ++i) {
        Text even(10000);
        for (Token& token : even) token = static_cast<Token>(below(batch.random(), 300));
        batch.start("b", even);
        batch.step();
    }
    batch.stop_all();
    require(index.stats().evicted_generations > 1, "nothing was evicted");
}

// Prompts that take many calls, two that are stopped before all of it was entered, and what comes whole at the end.
void run_long_prompts() {
    Index index(settings(Shape::kLearned, true, 0.02), 60000, 3, kThreads);
    Batch batch(index, 2);
    batch.start("a", 90000, 300);
    batch.start("b", 80000, 5000);
    batch.start("b", 80000, 50);
    for (int i = 0; i < 3; ++i) batch.step();
    batch.stop(1);
    batch.stop(1);
    Text last = text(batch.random(), 3000, 20);
    index.stop(index.start("b", last.data(), 10), last.data() + 10, last.size() - 10);
    for (int i = 0; i < 40; ++i) batch.step();
    Handle unknown = 99;
    int32_t none = 0;
    Drafts drafts;
    bool refused = false;
    try {
        index.step(&unknown, &none, &none, 1, nullptr, drafts);
    } catch (const std::out_of_range&) {
        refused = true;
    }
    require(refused, "an unknown handle is taken");
    batch.stop_all();
    require(index.stats().tokens > 16384, "the prompts are missing");
}

// The same batches with one thread and with two; and indexes that end right after their first large batch, or before.
void run_large(Shape shape, uint64_t capacity) {
    Settings given = settings(shape, true, 0.01);
    Index alone(given, capacity, 4, 1), together(given, capacity, 4, kThreads);
    Batch one(alone, 7), two(together, 7);
    for (int i = 0; i < 30; ++i) {
        for (Batch* batch : {&one, &two}) {
            while (batch->size() < kLarge) {
                std::string name_space(1, static_cast<char>('a' + below(batch->random(), 3)));
                batch->start(name_space, below(batch->random(), 100), 30);
            }
            batch->step();
        }
        require(same(one.drafts(), two.drafts()), "drafts depend on the number of threads");
    }
    require(one.num_nodes() > 100, "there were hardly any drafts");
    for (int i = 0; i < 50; ++i) {
        Index index(given, capacity, 4, kThreads);
        Batch batch(index, 8);
        for (size_t k = 0; i % 2 && k < kLarge; ++k) batch.start("a", 4, 3);
        if (i % 2) batch.step();
    }
}

// Two callers in the same namespaces, one that brings and takes corpora, one that looks on.
void run_together(double seconds, Shape shape, size_t num_requests, uint64_t capacity) {
    Index index(settings(shape, true, 0.01), capacity, 5, kThreads);
    std::atomic<bool> over{false};
    std::atomic<size_t> num_nodes{0};
    auto caller = [&](uint32_t seed) {
        Batch batch(index, seed);
        while (!over) {
            while (batch.size() < num_requests)
                batch.start(below(batch.random(), 2) ? "a" : "b", below(batch.random(), 150), 30);
            batch.step();
        }
        batch.stop_all();
        num_nodes += batch.num_nodes();
    };
    auto librarian = [&] {
        Random random(5);
        while (!over) {
            std::string name(1, static_cast<char>('x' + below(random, 2)));
            index.add_corpus(name, corpus(random, shape, 3));
            if (below(random, 2)) index.remove_corpus(name);
        }
    };
    auto onlooker = [&] {
        while (!over) {
            Stats stats = index.stats();
            require(stats.tokens <= capacity && (stats.bytes > 0 || stats.requests == 0), "the figures are wrong");
            std::this_thread::yield();
        }
    };
    std::vector<std::thread> threads;
    threads.emplace_back(caller, 3);
    threads.emplace_back(caller, 4);
    threads.emplace_back(librarian);
    threads.emplace_back(onlooker);
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    over = true;
    for (std::thread& thread : threads) thread.join();
    Stats stats = index.stats();
    require(num_nodes > 0 && stats.requests == 0 && stats.evicted_generations > 0, "the callers did nothing");
}

}  // namespace

int main(int argc, char** argv) {
    double seconds = argc > 1 ? std::atof(argv[1]) : 2;
    for (Shape shape : {Shape::kLearned, Shape::kFrequency, Shape::kRecency}) {
        run_alone(shape, true, 300, 6, 0);
        run_alone(shape, true, 20000, 60, 0.05);
        run_alone(shape, false, 300, 60, 0.01);
        run_wide_states(shape);
    }
    run_long_prompts();
    for (Shape shape : {Shape::kLearned, Shape::kFrequency, Shape::kRecency}) {
        run_large(shape, 400);  // a request that lists its sources drops those of others
        run_large(shape, 4000);
        run_together(seconds / 6, shape, 3, 700);
        run_together(seconds / 6, shape, kLarge, 4000);
    }
    std::puts("stress: ok");
    return 0;
}
