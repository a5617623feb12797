// The decoder's layers as one job of the pool: every phase between two attention calls, and those too.
#pragma once

#include <memory>
#include <vector>

#include "attention.hpp"
#include "kernels.hpp"
#include "plan.hpp"
#include "pool.hpp"

namespace specserve {

template <typename S>
struct Layer {
    const S* input_norm;
    Linear<S> qkv;
    const S* q_norm;  // null where the family has none
    const S* k_norm;
    Linear<S> o;
    const S* post_norm;
    Linear<S> gate_up;
    Linear<S> down;
    CacheLayer<S> cache;
    int window;
};

struct Shape {
    int hidden, inner;
    Heads heads;
    float eps, scale, key_limit;
    int rotary_size;
    const float* cos;  // [positions][rotary_size]
    const float* sin;
};

template <typename S>
class Stack {
   public:
    Stack(const Table<S>& table, std::shared_ptr<Pool> pool, Shape shape, std::vector<Layer<S>> layers, const S* final_norm,
          Linear<S> head);

    // x: [rows][hidden], changed in place by layers [begin, end).
    void forward(S* x, const int64_t* positions, const int64_t* slots, const Plan& plan, int begin, int end);

    // logits[i] of row rows[i], or of row i where `rows` is null.
    void logits(const S* x, const int64_t* rows, int count, float* out);

   private:
    struct Inputs {
        S* x;
        const int64_t* positions;
        const int64_t* slots;
        const Plan* plan;
        int rows;
    };
    void layer(Pool::Crew& crew, const Layer<S>& layer, const Inputs& in);
    auto normed(Pool::Crew& crew, const S* x, const S* gain, int rows);
    void rotate_and_keep(const Layer<S>& layer, const Inputs& in, int row);

    Table<S> table_;
    std::shared_ptr<Pool> pool_;
    Shape shape_;
    std::vector<Layer<S>> layers_;
    const S* final_norm_;
    Linear<S> head_;
    Attention<S> attention_;
    std::vector<S> normed_, qkv_, attended_, inner_;
    std::vector<std::vector<S>> own_;  // by thread: normed rows of a small batch
};

}  // namespace specserve
