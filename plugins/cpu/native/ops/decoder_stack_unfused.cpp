// A layer product by product: for batches with adapters and for attention of somebody else's.
#include <algorithm>

#include "ops/decoder_stack.hpp"

namespace specserve {

// `task(begin, count, adapter)` for runs of rows under one adapter's layer, null for none, a few rows at a time.
template <typename S>
template <typename Task>
void Stack<S>::each_run(Pool::Crew& crew, int layer, int rows, Task task) {
    int height = std::min(divided_up(rows, crew.size()), kLowRankRows);  // weights are read once per run
    crew.share(divided_up(rows, height), [&](int i) {
        int end = std::min(rows, (i + 1) * height);
        for (int begin = i * height, r = begin + 1; begin < end; begin = r++) {
            const Adapter<S>* adapter = adapters_[static_cast<size_t>(begin)];
            while (r < end && adapters_[static_cast<size_t>(r)] == adapter) ++r;
            bool knows = adapter && static_cast<size_t>(layer) < adapter->layers.size();
            task(begin, r - begin, knows ? &adapter->layers[static_cast<size_t>(layer)] : nullptr);
        }
    });
}

template <typename S>
void Stack<S>::add_adapters(const AdapterLayer<S>* adapter, LowRank<S> AdapterLayer<S>::* projection, Rows<const S> x,
                            S* out, int outs) const {
    if (adapter) add_low_rank(table_, adapter->*projection, x, {out, outs, x.count});
}

template <typename S>
void Stack<S>::norm(const S* gain, const S* x, int begin, int count) {
    ptrdiff_t hidden = shape_.hidden;
    table_.norm({x + begin * hidden, hidden, count}, gain, shape_.eps, shape_.hidden,
                {normed_.data() + begin * hidden, hidden, count});
}

// qkv from x, which the layer before has normed unless this is the first; keys and values go into the cache too where
// `slots` are given.
template <typename S>
void Stack<S>::project(Pool::Crew& crew, int index, bool is_first, const S* x, const int64_t* positions, int rows,
                       S* qkv, const int64_t* slots) {
    const Layer<S>& layer = layers_[static_cast<size_t>(index)];
    ptrdiff_t hidden = shape_.hidden, wide = shape_.qkv_size();
    S* normed = normed_.data();
    if (is_first)
        each_run(crew, index, rows,
                 [&](int begin, int count, const AdapterLayer<S>*) { norm(layer.input_norm, x, begin, count); });
    crew.parts(layer.qkv.num_panels(), [&](int begin, int end) {
        table_.store(layer.qkv, {normed, hidden, rows}, {begin, end}, {qkv, wide, rows});
    });
    each_run(crew, index, rows, [&](int begin, int count, const AdapterLayer<S>* adapter) {
        add_adapters(adapter, &AdapterLayer<S>::qkv, {normed + begin * hidden, hidden, count}, qkv + begin * wide,
                     shape_.qkv_size());
        for (int r = begin; r < begin + count; ++r) {
            for (int h = 0; h < shape_.heads.keys; ++h) {
                turn(layer, positions[r], h, qkv + r * wide);
                if (slots) keep(layer, slots[r], h, qkv + r * wide);
            }
        }
    });
}

// From attention's output to the layer's, added to x, and normed for the next layer where `next_norm` is given.
template <typename S>
void Stack<S>::conclude(Pool::Crew& crew, int index, S* x, const S* attended, int rows, const S* next_norm) {
    const Layer<S>& layer = layers_[static_cast<size_t>(index)];
    ptrdiff_t hidden = shape_.hidden, inner = shape_.inner, query = shape_.query_size();
    S *normed = normed_.data(), *branch = branch_.data(), *gate_up = gate_up_.data(), *activated = inner_.data();
    crew.parts(layer.o.num_panels(), [&](int begin, int end) {
        table_.store(layer.o, {attended, query, rows}, {begin, end}, {branch, hidden, rows});
    });
    each_run(crew, index, rows, [&](int begin, int count, const AdapterLayer<S>* adapter) {
        add_adapters(adapter, &AdapterLayer<S>::o, {attended + begin * query, query, count}, branch + begin * hidden,
                     shape_.hidden);
        table_.plus(branch + begin * hidden, x + begin * hidden, count * shape_.hidden);
        norm(layer.post_norm, x, begin, count);
    });
    crew.parts(layer.gate_up.num_panels(), [&](int begin, int end) {
        table_.store(layer.gate_up, {normed, hidden, rows}, {begin, end}, {gate_up, 2 * inner, rows});
    });
    each_run(crew, index, rows, [&](int begin, int count, const AdapterLayer<S>* adapter) {
        S* both = gate_up + begin * 2 * inner;
        add_adapters(adapter, &AdapterLayer<S>::gate_up, {normed + begin * hidden, hidden, count}, both,
                     2 * shape_.inner);
        table_.activate({both, 2 * inner, count}, shape_.inner, {activated + begin * inner, inner, count});
    });
    crew.parts(layer.down.num_panels(), [&](int begin, int end) {
        table_.store(layer.down, {activated, inner, rows}, {begin, end}, {branch, hidden, rows});
    });
    each_run(crew, index, rows, [&](int begin, int count, const AdapterLayer<S>* adapter) {
        add_adapters(adapter, &AdapterLayer<S>::down, {activated + begin * inner, inner, count},
                     branch + begin * hidden, shape_.hidden);
        table_.plus(branch + begin * hidden, x + begin * hidden, count * shape_.hidden);
        if (next_norm) norm(next_norm, x, begin, count);
    });
}

template <typename S>
void Stack<S>::pieces(Pool::Crew& crew, int index, int begin, int end, const Inputs& in) {
    const Layer<S>& layer = layers_[static_cast<size_t>(index)];
    project(crew, index, index == begin, in.x, in.positions, in.rows, qkv_.data(), in.slots);
    attention_.run(crew, *in.plan, qkv_.data(), shape_.qkv_size(), layer.cache, layer.window, attended_.data());
    conclude(crew, index, in.x, attended_.data(), in.rows,
             index + 1 < end ? layers_[static_cast<size_t>(index) + 1].input_norm : nullptr);
}

template <typename S>
void Stack<S>::enter(int layer, const S* x, const int64_t* positions, int rows, const Segments& segments, S* qkv) {
    make_room(rows, segments);
    pool_->run(3, [&](Pool::Crew& crew) { project(crew, layer, true, x, positions, rows, qkv, nullptr); });
}

template <typename S>
void Stack<S>::leave(int layer, S* x, const S* attended, int rows, const Segments& segments) {
    make_room(rows, segments);
    pool_->run(6, [&](Pool::Crew& crew) { conclude(crew, layer, x, attended, rows, nullptr); });
}

template class Stack<Bf16>;
template class Stack<float>;

}  // namespace specserve
