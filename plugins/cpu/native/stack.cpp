#include "stack.hpp"

#include <algorithm>
#include <cstring>

namespace specserve {

namespace {
constexpr int kRedundant = 8;     // rows that every thread normalizes for itself rather than wait for others
constexpr int kPhases = 10;       // of a layer, at most
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
void Stack<S>::make_room(int num_rows, const Segments& segments) {
    size_t rows = static_cast<size_t>(num_rows);
    auto grow = [rows](std::vector<S>& memory, int size) {
        if (memory.size() < rows * static_cast<size_t>(size)) memory.resize(rows * static_cast<size_t>(size));
    };
    grow(normed_, shape_.hidden);
    grow(qkv_, shape_.qkv_size());
    grow(attended_, shape_.query_size());
    grow(inner_, shape_.inner);
    grow(branch_, shape_.hidden);
    grow(gate_up_, 2 * shape_.inner);
    adapters_.assign(rows, nullptr);
    for (const Segment<S>& segment : segments)
        std::fill(adapters_.begin() + segment.begin, adapters_.begin() + segment.end, segment.adapter);
}

template <typename S>
void Stack<S>::forward(S* x, const int64_t* positions, const int64_t* slots, const Plan& plan, int begin, int end,
                       const Segments& segments) {
    Inputs in{x, positions, slots, &plan, plan.num_rows()};
    make_room(in.rows, segments);
    attention_.prepare(plan, pool_->size());
    pool_->run((end - begin) * kPhases, [&](Pool::Crew& crew) {
        for (int l = begin; l < end; ++l) segments.empty() ? fused(crew, layers_[static_cast<size_t>(l)], in) : pieces(crew, l, begin, end, in);
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
void Stack<S>::turn(const Layer<S>& layer, int64_t position, S* qkv) const {
    const Heads& heads = shape_.heads;
    ptrdiff_t dim = heads.dim;
    Rotary rotary{shape_.cos + position * shape_.rotary_size, shape_.sin + position * shape_.rotary_size, shape_.rotary_size};
    S* keys = qkv + heads.queries * dim;
    if (layer.q_norm) {
        table_.norm({qkv, dim, heads.queries}, layer.q_norm, shape_.eps, heads.dim, {qkv, dim, heads.queries});
        table_.norm({keys, dim, heads.keys}, layer.k_norm, shape_.eps, heads.dim, {keys, dim, heads.keys});
    }
    for (int h = 0; h < heads.queries + heads.keys; ++h) table_.rotate(qkv + h * dim, rotary);
}

template <typename S>
void Stack<S>::keep(const Layer<S>& layer, int64_t slot, const S* qkv) const {
    int size = shape_.heads.keys * shape_.heads.dim;
    const S* keys = qkv + shape_.query_size();
    table_.keep_finite(keys, layer.cache.keys + slot * size, size, shape_.key_limit);
    table_.keep_finite(keys + size, layer.cache.values + slot * size, size, __builtin_inff());
}

template <typename S>
void Stack<S>::fused(Pool::Crew& crew, const Layer<S>& layer, const Inputs& in) {
    int rows = in.rows;
    ptrdiff_t hidden = shape_.hidden, inner = shape_.inner, query = shape_.query_size(), qkv = shape_.qkv_size();

    auto before = normed(crew, in.x, layer.input_norm, rows);
    crew.parts(layer.qkv.num_panels(), [&](int begin, int end) { table_.store(layer.qkv, before(), {begin, end}, {qkv_.data(), qkv, rows}); });
    crew.share(divided_up(rows, kRowsPerTask), [&](int task) {
        for (int r = task * kRowsPerTask; r < std::min(rows, (task + 1) * kRowsPerTask); ++r) {
            turn(layer, in.positions[r], qkv_.data() + r * qkv);
            keep(layer, in.slots[r], qkv_.data() + r * qkv);
        }
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
