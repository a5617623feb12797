// The Markov head of a block head: what the tokens before a place add to its logits. The same functions as piece by
// piece, and the same bits but for those of sigmoids and hyperbolic tangents.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/input_quantizer.hpp"
#include "runtime/thread_pool.hpp"

namespace specserve {

// Empty or null: the head has no such part. It has at most one of `gate` and `joint`.
template <typename S>
struct MarkovWeights {
    const S* entries = nullptr;  // [vocab_size][rank]
    int rank = 0;
    std::optional<Linear<S>> out;    // of what is read of a token's entry: what is added
    std::optional<Linear<S>> gate;   // of [state ; entry]: by its sigmoids the entry is multiplied
    std::optional<Linear<S>> joint;  // of [memory ; entry ; state]: what stays of the memory, what comes, what is read

    bool reads_state() const { return gate || joint; }
};

template <typename S>
class MarkovHead {
   public:
    // A place of a chain: the token before it, its row of the logits and of the states.
    struct Place {
        int64_t token;
        int64_t row;
        size_t chain;
    };
    struct States {
        const S* data;  // null where they are not read
        ptrdiff_t stride;
    };

    MarkovHead(const KernelTable<S>& table, std::shared_ptr<ThreadPool> pool, MarkovWeights<S> weights,
               int hidden_size);

    bool exists() const { return weights_.out.has_value(); }
    bool reads_state() const { return weights_.reads_state(); }
    const S* entry(int64_t token) const { return weights_.entries + token * weights_.rank; }

    // New chains, numbered from 0: nothing is remembered of them.
    void start(size_t chains);
    // To the logits, [rows][num_logits], what the places' tokens add; chains' places in turn.
    void add(const std::vector<Place>& places, States states, float* logits, int num_logits);

   private:
    void multiply_inputs(const Linear<S>& w, int count);
    void read_through_gates(const std::vector<Place>& places, States states);
    void read_with_memory(const std::vector<Place>& places, States states);

    KernelTable<S> table_;
    std::shared_ptr<ThreadPool> pool_;
    MarkovWeights<S> weights_;
    ptrdiff_t hidden_size_;
    std::vector<S> read_, memory_;  // [places][rank]; [chains][rank]
    std::vector<S> inputs_, made_;  // of `gate` or `joint`
    std::vector<float> wide_, kept_, added_;
    InputQuantizer<S> quantizer_;
};

}  // namespace specserve
