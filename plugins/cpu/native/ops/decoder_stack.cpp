#include "ops/decoder_stack.hpp"

#include <algorithm>
#include <cstring>

namespace specserve {

namespace {
constexpr int kRedundant = 8;  // rows that every thread normalizes for itself rather than wait for others
constexpr int kPhases = 10;    // of a layer, at most
constexpr int kRowsPerTask = 2, kRowsPerTurn = 16;
}  // namespace

template <typename S>
Stack<S>::Stack(const Table<S>& table, Layout<S> layout, std::shared_ptr<Pool> pool, Shape shape,
                std::vector<Layer<S>> layers, const S* final_norm, Linear<S> head)
    : table_(table), layout_(layout), pool_(std::move(pool)), shape_(shape), layers_(std::move(layers)),
      final_norm_(final_norm), head_(head), attention_(table, layout, shape.heads, shape.scale),
      own_(static_cast<size_t>(pool_->size())) {
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
        for (int l = begin; l < end; ++l) segments.empty() ? fused(crew, l, end, in) : pieces(crew, l, begin, end, in);
    });
}

// The rows normalized, for the tasks of the next phase to call. Few rows each thread normalizes for itself, and not
// before it has a task: a thread that comes late must not read x any more, for others may be writing it in a later
// phase.
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

// A key head's part of a row: the key and the queries of its group.
template <typename S>
void Stack<S>::turn(const Layer<S>& layer, int64_t position, int key_head, S* qkv) const {
    const Heads& heads = shape_.heads;
    ptrdiff_t dim = heads.dim;
    Rotary rotary{shape_.cos + position * shape_.rotary_size, shape_.sin + position * shape_.rotary_size,
                  shape_.rotary_size};
    S* queries = qkv + key_head * heads.group() * dim;
    S* key = qkv + (heads.queries + key_head) * dim;
    if (layer.q_norm) {
        table_.norm({queries, dim, heads.group()}, layer.q_norm, shape_.eps, heads.dim, {queries, dim, heads.group()});
        table_.norm({key, dim, 1}, layer.k_norm, shape_.eps, heads.dim, {key, dim, 1});
    }
    for (int h = 0; h < heads.group(); ++h) table_.rotate(queries + h * dim, rotary);
    table_.rotate(key, rotary);
}

template <typename S>
void Stack<S>::keep(const Layer<S>& layer, int64_t slot, int key_head, const S* qkv) const {
    const Heads& heads = shape_.heads;
    const S* key = qkv + (heads.queries + key_head) * ptrdiff_t{heads.dim};
    layout_.keep(key, key + layer.cache.slot_size(), layer.cache, key_head, slot, shape_.key_limit);
}

// Panels [begin, end) of a phase over `count`. Behind the last ones of its run a thread wants its first of the next
// product.
template <typename S>
Panels Stack<S>::panels_of(const Pool::Crew& crew, int begin, int end, int count, const Linear<S>& next,
                           int next_count) {
    return {begin, end,
            end == crew.end_of(count) ? next.panels + crew.first_of(next_count) * next.panel_stride() : nullptr};
}

template <typename S>
void Stack<S>::fused(Pool::Crew& crew, int index, int last, const Inputs& in) {
    int rows = in.rows;
    ptrdiff_t hidden = shape_.hidden, inner = shape_.inner, query = shape_.query_size(), qkv = shape_.qkv_size();
    const Layer<S>& layer = layers_[static_cast<size_t>(index)];
    const Linear<S>& next = index + 1 < last ? layers_[static_cast<size_t>(index) + 1].qkv : head_;
    int qkv_panels = layer.qkv.num_panels(), o_panels = layer.o.num_panels(), gates = layer.gate_up.num_panels() / 2;
    int down_panels = layer.down.num_panels();

    auto before = normed(crew, in.x, layer.input_norm, rows);
    crew.parts(qkv_panels, [&](int begin, int end) {
        table_.store(layer.qkv, before(), panels_of(crew, begin, end, qkv_panels, layer.o, o_panels),
                     {qkv_.data(), qkv, rows});
    });
    attention_.fetch_first(crew, *in.plan, layer.cache, layer.window);
    int key_heads = shape_.heads.keys;  // a task has one of a few rows: slots that share memory stay with one thread
    crew.share(key_heads * divided_up(rows, kRowsPerTurn), [&](int task) {
        int head = task % key_heads, begin = task / key_heads * kRowsPerTurn;
        for (int r = begin; r < std::min(rows, begin + kRowsPerTurn); ++r) {
            turn(layer, in.positions[r], head, qkv_.data() + r * qkv);
            keep(layer, in.slots[r], head, qkv_.data() + r * qkv);
        }
    });
    attention_.run(crew, *in.plan, qkv_.data(), qkv, layer.cache, layer.window, attended_.data());
    Rows<const S> attended{attended_.data(), query, rows};
    crew.parts(o_panels, [&](int begin, int end) {
        table_.add(layer.o, attended, panels_of(crew, begin, end, o_panels, layer.gate_up, gates),
                   {in.x, hidden, rows});
    });
    auto after = normed(crew, in.x, layer.post_norm, rows);
    crew.parts(gates, [&](int begin, int end) {
        table_.gated(layer.gate_up, after(), panels_of(crew, begin, end, gates, layer.down, down_panels),
                     {inner_.data(), inner, rows});
    });
    Rows<const S> activated{inner_.data(), inner, rows};
    crew.parts(down_panels, [&](int begin, int end) {
        table_.add(layer.down, activated, panels_of(crew, begin, end, down_panels, next, next.num_panels()),
                   {in.x, hidden, rows});
    });
}

template <typename S>
void Stack<S>::logits(const S* x, const int64_t* rows, int count, float* out) {
    size_t wide = static_cast<size_t>(shape_.hidden);
    if (normed_.size() < static_cast<size_t>(count) * wide) normed_.resize(static_cast<size_t>(count) * wide);
    for (int i = 0; i < count; ++i) {
        const S* from = x + (rows ? rows[i] : i) * static_cast<ptrdiff_t>(wide);
        table_.norm({from, shape_.hidden, 1}, final_norm_, shape_.eps, shape_.hidden,
                    {normed_.data() + static_cast<size_t>(i) * wide, shape_.hidden, 1});
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
