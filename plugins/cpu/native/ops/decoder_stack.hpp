// The decoder's layers as one job of the pool: every phase between two attention calls, and those too.
//
// A layer goes one of two ways with the same bits. Where no row is under an adapter and attention is our own, products
// take in what follows them (`fused`). Else it goes product by product, with the work on single rows, adapters
// included, in between (`enter`, attention, `leave`); attention may then be anybody's.
#pragma once

#include <memory>
#include <vector>

#include "ops/attention.hpp"
#include "kernels/kernel_table.hpp"
#include "ops/lowrank.hpp"
#include "ops/attention_plan.hpp"
#include "runtime/thread_pool.hpp"

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
    CacheLayer<S> cache;  // null pointers where attention is somebody else's
    int window;
};

struct Shape {
    int hidden, inner;
    Heads heads;
    float eps, scale, key_limit;
    int rotary_size;
    const float* cos;  // [positions][rotary_size]
    const float* sin;

    int query_size() const { return heads.queries * heads.dim; }
    int qkv_size() const { return (heads.queries + 2 * heads.keys) * heads.dim; }
};

template <typename S>
class Stack {
   public:
    using Segments = std::vector<Segment<S>>;

    Stack(const Table<S>& table, Layout<S> layout, std::shared_ptr<Pool> pool, Shape shape,
          std::vector<Layer<S>> layers, const S* final_norm, Linear<S> head);

    // x: [rows][hidden], changed in place by layers [begin, end).
    void forward(S* x, const int64_t* positions, const int64_t* slots, const Plan& plan, int begin, int end,
                 const Segments& segments);

    // The two halves of a layer around an attention of somebody else's. qkv: [rows][queries, keys, values], turned.
    void enter(int layer, const S* x, const int64_t* positions, int rows, const Segments& segments, S* qkv);
    void leave(int layer, S* x, const S* attended, int rows, const Segments& segments);

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
    void make_room(int rows, const Segments& segments);
    void fused(Pool::Crew& crew, int layer, int end, const Inputs& in);
    void pieces(Pool::Crew& crew, int layer, int begin, int end, const Inputs& in);
    static Panels panels_of(const Pool::Crew& crew, int begin, int end, int count, const Linear<S>& next,
                            int next_count);
    void project(Pool::Crew& crew, int layer, bool is_first, const S* x, const int64_t* positions, int rows, S* qkv,
                 const int64_t* slots);
    void conclude(Pool::Crew& crew, int layer, S* x, const S* attended, int rows, const S* next_norm);
    void norm(const S* gain, const S* x, int begin, int count);
    template <typename Task>
    void each_run(Pool::Crew& crew, int layer, int rows, Task task);
    void add_adapters(const AdapterLayer<S>* adapter, LowRank<S> AdapterLayer<S>::* projection, Rows<const S> x, S* out,
                      int outs) const;
    auto normed(Pool::Crew& crew, const S* x, const S* gain, int rows);
    void turn(const Layer<S>& layer, int64_t position, int key_head, S* qkv) const;
    void keep(const Layer<S>& layer, int64_t slot, int key_head, const S* qkv) const;

    Table<S> table_;
    Layout<S> layout_;
    std::shared_ptr<Pool> pool_;
    Shape shape_;
    std::vector<Layer<S>> layers_;
    const S* final_norm_;
    Linear<S> head_;
    Attention<S> attention_;
    std::vector<S> normed_, qkv_, attended_, inner_;
    std::vector<S> branch_, gate_up_;          // of layers in pieces
    std::vector<std::vector<S>> own_;          // by thread: normed rows of a small batch
    std::vector<const Adapter<S>*> adapters_;  // by row; null: none
};

}  // namespace specserve
