#include "stack.hpp"

#include <algorithm>
#include <cstring>

namespace specserve {

namespace {
constexpr int kRedundant = 8;     // rows that every thread normalizes for itself rather than wait for others
constexpr int kPhases = 8;        // of a layer, at most
constexpr int kRowsPerTask = 2;
}  // namespace

template <typename S>
Stack<S>::Stack(const Table<S>& table, std::shared_ptr<Pool> pool, Shape shape, std::vector<Layer<S>> layers,
                const S* final_norm, Linear<S> head)
    : table_(table), pool_(std::move(pool)), shape_(shape), layers_(std::move(layers)), final_norm_(final_norm), head_(head),
      attention_(table, shape.heads, shape.scale), own_(static_cast<size_t>(pool_->size())) {
    for (std::vector<S>& own : own_) own.resize(static_cast<size_t>(kRedundant * shape.hidden));
}

template <typename S>
void Stack<S>::forward(S* x, const int64_t* positions, const int64_t* slots, const Plan& plan, int begin, int end) {
    Inputs in{x, positions, slots, &plan, plan.num_rows()};
    size_t rows = static_cast<size_t>(in.rows);
    const Heads& heads = shape_.heads;
    auto grow = [](std::vector<S>& memory, size_t size) {
        if (memory.size() < size) memory.resize(size);
    };
    grow(normed_, rows * static_cast<size_t>(shape_.hidden));
    grow(qkv_, rows * static_cast<size_t>((heads.queries + 2 * heads.keys) * heads.dim));
    grow(attended_, rows * static_cast<size_t>(heads.queries * heads.dim));
    grow(inner_, rows * static_cast<size_t>(shape_.inner));
    attention_.prepare(plan, pool_->size());
    pool_->run((end - begin) * kPhases, [&](Pool::Crew& crew) {
        for (int l = begin; l < end; ++l) layer(crew, layers_[static_cast<size_t>(l)], in);
    });
}

// The rows normalized, for the tasks of the next phase to call. Few rows each thread normalizes for itself, and not before
// it has a task: a thread that comes late must not read x any more, for others may be writing it in a later phase.
template <typename S>
auto Stack<S>::normed(Pool::Crew& crew, const S* x, const S* gain, int rows) {
    ptrdiff_t wide = shape_.hidden;
    auto norm = [=, this](int begin, int count, S* to) {
        table_.norm({x + begin * wide, wide, count}, gain, shape_.eps, shape_.hidden, {to, wide, count});
    };
    bool ready = rows > kRedundant;
    S* to = ready ? normed_.data() : own_[static_cast<size_t>(crew.thread())].data();
    if (ready)
        crew.share(divided_up(rows, kRowsPerTask), [&](int task) {
            int begin = task * kRowsPerTask;
            norm(begin, std::min(kRowsPerTask, rows - begin), to + begin * wide);
        });
    return [=]() mutable -> Rows<const S> {
        if (!ready) norm(0, rows, to);
        ready = true;
        return {to, wide, rows};
    };
}

template <typename S>
void Stack<S>::rotate_and_keep(const Layer<S>& layer, const Inputs& in, int row) {
    const Heads& heads = shape_.heads;
    ptrdiff_t dim = heads.dim;
    int64_t position = in.positions[row];
    Rotary rotary{shape_.cos + position * shape_.rotary_size, shape_.sin + position * shape_.rotary_size, shape_.rotary_size};
    S* qkv = qkv_.data() + row * (heads.queries + 2 * heads.keys) * dim;
    S* keys = qkv + heads.queries * dim;
    if (layer.q_norm) {
        table_.norm({qkv, dim, heads.queries}, layer.q_norm, shape_.eps, heads.dim, {qkv, dim, heads.queries});
        table_.norm({keys, dim, heads.keys}, layer.k_norm, shape_.eps, heads.dim, {keys, dim, heads.keys});
    }
    for (int h = 0; h < heads.queries + heads.keys; ++h) table_.rotate(qkv + h * dim, rotary);
    int size = heads.keys * heads.dim;
    ptrdiff_t slot = in.slots[row] * size;
    table_.keep_finite(keys, layer.cache.keys + slot, size, shape_.key_limit);
    table_.keep_finite(keys + size, layer.cache.values + slot, size, __builtin_inff());
}

template <typename S>
void Stack<S>::layer(Pool::Crew& crew, const Layer<S>& layer, const Inputs& in) {
    const Heads& heads = shape_.heads;
    int rows = in.rows;
    ptrdiff_t hidden = shape_.hidden, inner = shape_.inner, query = ptrdiff_t{heads.queries} * heads.dim;
    ptrdiff_t qkv = query + 2 * ptrdiff_t{heads.keys} * heads.dim;

    auto before = normed(crew, in.x, layer.input_norm, rows);
    crew.parts(layer.qkv.num_panels(), [&](int begin, int end) { table_.store(layer.qkv, before(), {begin, end}, {qkv_.data(), qkv, rows}); });
    crew.share(divided_up(rows, kRowsPerTask), [&](int task) {
        for (int r = task * kRowsPerTask; r < std::min(rows, (task + 1) * kRowsPerTask); ++r) rotate_and_keep(layer, in, r);
    });
    attention_.run(crew, *in.plan, qkv_.data(), qkv, layer.cache, layer.window, attended_.data());
    Rows<const S> attended{attended_.data(), query, rows};
    crew.parts(layer.o.num_panels(), [&](int begin, int end) { table_.add(layer.o, attended, {begin, end}, {in.x, hidden, rows}); });
    auto after = normed(crew, in.x, layer.post_norm, rows);
    crew.parts(layer.gate_up.num_panels() / 2, [&](int begin, int end) { table_.gated(layer.gate_up, after(), {begin, end}, {inner_.data(), inner, rows}); });
    Rows<const S> activated{inner_.data(), inner, rows};
    crew.parts(layer.down.num_panels(), [&](int begin, int end) { table_.add(layer.down, activated, {begin, end}, {in.x, hidden, rows}); });
}

template <typename S>
void Stack<S>::logits(const S* x, const int64_t* rows, int count, float* out) {
    size_t wide = static_cast<size_t>(shape_.hidden);
    if (normed_.size() < static_cast<size_t>(count) * wide) normed_.resize(static_cast<size_t>(count) * wide);
    for (int i = 0; i < count; ++i) {
        const S* from = x + (rows ? rows[i] : i) * static_cast<ptrdiff_t>(wide);
        table_.norm({from, shape_.hidden, 1}, final_norm_, shape_.eps, shape_.hidden, {normed_.data() + static_cast<size_t>(i) * wide, shape_.hidden, 1});
    }
    pool_->run(1, [&](Pool::Crew& crew) {
        crew.parts(head_.num_panels(), [&](int begin, int end) {
            table_.logits(head_, {normed_.data(), shape_.hidden, count}, {begin, end}, {out, head_.outs, count});
        });
    });
}

template class Stack<Bf16>;
template class Stack<float>;

}  // namespace specserve
