#include "ops/markov_head.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/half.hpp"
#include "ops/grow.hpp"
#include "ops/linear.hpp"
#include "runtime/kernel_job.hpp"

namespace specserve {

template <typename S>
MarkovHead<S>::MarkovHead(const KernelTable<S>& table, std::shared_ptr<ThreadPool> pool, MarkovWeights<S> weights,
                          int hidden_size)
    : table_(table), pool_(std::move(pool)), weights_(std::move(weights)), hidden_size_(hidden_size) {
    for (const std::optional<Linear<S>>* w : {&weights_.out, &weights_.gate, &weights_.joint})
        if (*w) quantizer_.add(**w);
}

template <typename S>
void MarkovHead<S>::start(size_t chains) {
    if (weights_.joint) memory_.assign(chains * static_cast<size_t>(weights_.rank), S{});
}

// Into made_.
template <typename S>
void MarkovHead<S>::multiply_inputs(const Linear<S>& w, int count) {
    grow(made_, static_cast<size_t>(count), w.out_features);
    quantizer_.reserve(count);
    run_kernels(*pool_, table_, 2, [&](ThreadPool::Team& team) {
        multiply(team, table_, w, quantizer_, {inputs_.data(), w.in_features, count},
                 {made_.data(), w.out_features, count});
    });
}

template <typename S>
void MarkovHead<S>::read_through_gates(const std::vector<Place>& places, States states) {
    ptrdiff_t rank = weights_.rank, width = hidden_size_ + rank;
    grow(inputs_, places.size(), width);
    for (size_t i = 0; i < places.size(); ++i) {
        S* to = std::copy_n(states.data + places[i].row * states.stride, hidden_size_,
                            inputs_.data() + static_cast<ptrdiff_t>(i) * width);
        std::copy_n(entry(places[i].token), rank, to);
    }
    multiply_inputs(*weights_.gate, static_cast<int>(places.size()));
    KernelJob<S> job(table_);
    for (size_t i = 0; i < places.size(); ++i) {
        ptrdiff_t at = static_cast<ptrdiff_t>(i) * rank;
        table_.gate(entry(places[i].token), made_.data() + at, weights_.rank, 1, read_.data() + at);
    }
}

template <typename S>
void MarkovHead<S>::read_with_memory(const std::vector<Place>& places, States states) {
    ptrdiff_t rank = weights_.rank, width = hidden_size_ + 2 * rank;
    grow(inputs_, places.size(), width);
    grow(wide_, 3, rank);
    grow(kept_, 2, rank);
    for (size_t i = 0; i < places.size(); ++i) {
        S* to = inputs_.data() + static_cast<ptrdiff_t>(i) * width;
        to = std::copy_n(memory_.data() + static_cast<ptrdiff_t>(places[i].chain) * rank, rank, to);
        to = std::copy_n(entry(places[i].token), rank, to);
        std::copy_n(states.data + places[i].row * states.stride, hidden_size_, to);
    }
    multiply_inputs(*weights_.joint, static_cast<int>(places.size()));
    KernelJob<S> job(table_);
    auto near = [&](float x) {  // rounded to S, as a float
        S all[1] = {rounded<S>(x)};
        float wide[1];
        table_.widen(all, 1, wide);
        return wide[0];
    };
    float *shares = kept_.data(), *before = shares + rank;
    const float *comes = wide_.data() + rank, *reads = comes + rank;
    for (size_t i = 0; i < places.size(); ++i) {
        const S* made = made_.data() + 3 * static_cast<ptrdiff_t>(i) * rank;
        S *memory = memory_.data() + static_cast<ptrdiff_t>(places[i].chain) * rank,
          *read = read_.data() + static_cast<ptrdiff_t>(i) * rank;
        table_.widen(made, static_cast<int>(3 * rank), wide_.data());
        table_.sigmoids(made, weights_.rank, shares);
        table_.widen(memory, weights_.rank, before);
        for (ptrdiff_t j = 0; j < rank; ++j) {
            read[j] = rounded<S>(std::tanh(reads[j]));
            float stays = near(shares[j] * before[j]), new_share = near(1.0f - shares[j]);
            memory[j] = rounded<S>(stays + near(new_share * near(std::tanh(comes[j]))));
        }
    }
}

template <typename S>
void MarkovHead<S>::add(const std::vector<Place>& places, States states, float* logits, int num_logits) {
    const Linear<S>& w = *weights_.out;
    ptrdiff_t rank = weights_.rank, size = num_logits;
    int count = static_cast<int>(places.size());
    grow(read_, places.size(), rank);
    grow(added_, places.size(), size);
    if (weights_.gate) {
        read_through_gates(places, states);
    } else if (weights_.joint) {
        read_with_memory(places, states);
    } else {
        for (int i = 0; i < count; ++i)
            std::copy_n(entry(places[static_cast<size_t>(i)].token), rank, read_.data() + i * rank);
    }
    Rows<const S> read{read_.data(), rank, count};
    quantizer_.reserve(count);
    quantizer_.quantize(table_, w, read, 0, count);
    Inputs<S> inputs = quantizer_.inputs(w, read);
    run_kernels(*pool_, table_, 1, [&](ThreadPool::Team& team) {
        team.parallel_for_ranges(w.num_panels(), [&](int begin, int end) {
            table_.linear_logits(w, inputs, {begin, end}, {added_.data(), size, count});
            ptrdiff_t last = std::min(ptrdiff_t{end} * kLanes, size);
            for (int i = 0; i < count; ++i) {
                float* to = logits + places[static_cast<size_t>(i)].row * size;
                const float* more = added_.data() + i * size;
                for (ptrdiff_t column = ptrdiff_t{begin} * kLanes; column < last; ++column) to[column] += more[column];
            }
        });
    });
}

template class MarkovHead<Bf16>;
template class MarkovHead<float>;

}  // namespace specserve
