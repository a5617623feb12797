// The Python face of the kernels: tensors by DLPack in and out, the GIL released while they work.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <mutex>
#include <optional>

#include "arrays.hpp"
#include "machine.hpp"
#include "packed.hpp"
#include "plan.hpp"
#include "stack.hpp"

namespace specserve {

void bind_sampler(nb::module_& m);  // bind_sampler.cpp

namespace {

template <typename S>
const Table<S>& table_of(const Kernels& kernels);
template <>
const Table<Bf16>& table_of<Bf16>(const Kernels& kernels) { return kernels.bf16; }
template <>
const Table<float>& table_of<float>(const Kernels& kernels) { return kernels.f32; }

// A job of one phase over [0, count).
template <typename Task>
void in_parts(Pool& pool, int count, Task task) {
    pool.run(1, [&](Pool::Crew& crew) { crew.parts(count, task); });
}

template <typename S>
class PackedLinear {
   public:
    PackedLinear(std::shared_ptr<Machine> machine, const Array& weight, const std::optional<Array>& bias)
        : machine_(std::move(machine)), packed_(pack(weight, bias)) {}

    void run(const Array& x, const Array& out) const {
        const Linear<S>& w = packed_.linear();
        const S* from = numbers<S>(x, "x", {kAny, w.ins}, 1);
        int rows = static_cast<int>(x.shape(0));
        S* to = numbers<S>(out, "out", {rows, w.outs}, 1);
        const Table<S>& table = table_of<S>(machine_->kernels);
        nb::gil_scoped_release free;
        if (rows == 0) return;
        in_parts(*machine_->pool, w.num_panels(), [&](int begin, int end) {
            table.store(w, {from, x.stride(0), rows}, {begin, end}, {to, out.stride(0), rows});
        });
    }

    const Linear<S>& linear() const { return packed_.linear(); }

   private:
    static Packed<S> pack(const Array& weight, const std::optional<Array>& bias) {
        const S* w = numbers<S>(weight, "weight", {kAny, kAny});
        int outs = static_cast<int>(weight.shape(0)), ins = static_cast<int>(weight.shape(1));
        if (outs < 1 || ins < 1 || ins % kStep<S>)
            throw std::invalid_argument("weight must have outputs and, in bfloat16, an even number of inputs; got " + sizes_of(weight) + ".");
        const S* b = bias ? numbers<S>(*bias, "bias", {outs}) : nullptr;
        nb::gil_scoped_release free;
        return Packed<S>(w, b, outs, ins);
    }

    std::shared_ptr<Machine> machine_;
    Packed<S> packed_;
};

// x: [rows, ..., size], the rows' inner dimensions folded by the caller.
template <typename S>
void rms_norm(const Machine& machine, const Array& x, const Array& gain, float eps, const Array& out) {
    const S* g = numbers<S>(gain, "weight", {kAny});
    int size = static_cast<int>(gain.shape(0));
    const S* from = numbers<S>(x, "x", {kAny, kAny, size}, 2);
    int rows = static_cast<int>(x.shape(0)), heads = static_cast<int>(x.shape(1));
    S* to = numbers<S>(out, "out", {rows, heads, size});
    nb::gil_scoped_release free;
    if (rows == 0) return;
    in_parts(*machine.pool, rows, [&](int begin, int end) {
        for (int r = begin; r < end; ++r)
            table_of<S>(machine.kernels)
                .norm({from + r * x.stride(0), x.stride(1), heads}, g, eps, size, {to + ptrdiff_t{r} * heads * size, size, heads});
    });
}

void check_rotary(const Array& cos, int dim) {
    if (cos.shape(2) % 2 || static_cast<int>(cos.shape(2)) > dim)
        throw std::invalid_argument("cos must have an even number of columns, at most a head's; got " + sizes_of(cos) + ".");
}

// heads: [rows, heads, dim], turned in place
template <typename S>
void rotary(const Machine& machine, const Array& heads, const Array& cos, const Array& sin) {
    S* at = numbers<S>(heads, "x", {kAny, kAny, kAny}, 2);
    int rows = static_cast<int>(heads.shape(0)), count = static_cast<int>(heads.shape(1));
    const float* c = numbers<float>(cos, "cos", {rows, 1, kAny});
    int size = static_cast<int>(cos.shape(2));
    const float* s = numbers<float>(sin, "sin", {rows, 1, size});
    check_rotary(cos, static_cast<int>(heads.shape(2)));
    nb::gil_scoped_release free;
    if (rows == 0) return;
    in_parts(*machine.pool, rows, [&](int begin, int end) {
        for (int r = begin; r < end; ++r)
            for (int h = 0; h < count; ++h)
                table_of<S>(machine.kernels)
                    .rotate(at + r * heads.stride(0) + h * heads.stride(1), {c + ptrdiff_t{r} * size, s + ptrdiff_t{r} * size, size});
    });
}

template <typename S>
void silu_and_multiply(const Machine& machine, const Array& gate_up, const Array& out) {
    const S* from = numbers<S>(gate_up, "gate_up", {kAny, kAny}, 1);
    int rows = static_cast<int>(gate_up.shape(0)), size = static_cast<int>(gate_up.shape(1)) / 2;
    if (gate_up.shape(1) % 2) throw std::invalid_argument("gate_up must have an even number of columns; got " + sizes_of(gate_up) + ".");
    S* to = numbers<S>(out, "out", {rows, size});
    nb::gil_scoped_release free;
    if (rows == 0) return;
    in_parts(*machine.pool, rows, [&](int begin, int end) {
        table_of<S>(machine.kernels)
            .activate({from + begin * gate_up.stride(0), gate_up.stride(0), end - begin}, size, {to + ptrdiff_t{begin} * size, size, end - begin});
    });
}

// A plan and the proof that its slots lie in the cache.
void check_plan(const Plan& plan, int64_t rows, int64_t slots) {
    if (plan.num_rows() != rows)
        throw std::invalid_argument("the plan is for " + std::to_string(plan.num_rows()) + " rows; got " + std::to_string(rows) + ".");
    if (plan.highest_slot() >= slots)
        throw std::invalid_argument("the plan's blocks reach slot " + std::to_string(plan.highest_slot()) + "; the cache has " +
                                    std::to_string(slots) + ".");
}

void check_window(int window) {
    if (window < 0) throw std::invalid_argument("window must be at least 0, which is none; got " + std::to_string(window) + ".");
}

void check_slots(const int64_t* at, int64_t count, int64_t slots) {
    for (int64_t i = 0; i < count; ++i)
        if (at[i] < 0 || at[i] >= slots)
            throw std::invalid_argument("slots must be in [0, " + std::to_string(slots) + "); got " + std::to_string(at[i]) + ".");
}

template <typename S>
class PagedAttention {
   public:
    // cache: [layers, 2, slots, key heads, dim]
    PagedAttention(std::shared_ptr<Machine> machine, Array cache, int query_heads, float scale, float key_limit)
        : machine_(std::move(machine)), cache_(std::move(cache)),
          at_(numbers<S>(cache_, "cache", {kAny, 2, kAny, kAny, kAny})),
          heads_{query_heads, static_cast<int>(cache_.shape(3)), static_cast<int>(cache_.shape(4))}, key_limit_(key_limit),
          attention_(table_of<S>(machine_->kernels), heads_, scale) {
        if (heads_.keys < 1 || heads_.queries < 1 || heads_.queries % heads_.keys)
            throw std::invalid_argument("query heads must be a multiple of key heads; got " + std::to_string(query_heads) + " and " +
                                        std::to_string(heads_.keys) + ".");
        if (heads_.dim < 1 || heads_.dim % kStep<S>)
            throw std::invalid_argument("head_dim must be at least 1 and, in bfloat16, even; got " + std::to_string(heads_.dim) + ".");
    }

    void run(int layer, const Array& q, const Array& k, const Array& v, const Array& slots, const Plan& plan, int window, const Array& out) {
        const S* queries = numbers<S>(q, "q", {kAny, heads_.queries, heads_.dim}, 1);
        int64_t rows = static_cast<int64_t>(q.shape(0));
        const S* keys = numbers<S>(k, "k", {rows, heads_.keys, heads_.dim}, 1);
        const S* values = numbers<S>(v, "v", {rows, heads_.keys, heads_.dim}, 1);
        const int64_t* places = numbers<int64_t>(slots, "slots", {rows});
        S* to = numbers<S>(out, "out", {rows, heads_.queries, heads_.dim});
        if (layer < 0 || layer >= static_cast<int>(cache_.shape(0)))
            throw std::invalid_argument("layer must be in [0, " + std::to_string(cache_.shape(0)) + "); got " + std::to_string(layer) + ".");
        check_window(window);
        check_plan(plan, rows, num_slots());
        check_slots(places, rows, num_slots());
        const Table<S>& table = table_of<S>(machine_->kernels);
        nb::gil_scoped_release free;
        if (rows == 0) return;
        std::lock_guard alone(busy_);
        CacheLayer<S> cache = layer_of(layer);
        int size = heads_.keys * heads_.dim;
        attention_.prepare(plan, machine_->pool->size());
        machine_->pool->run(2, [&](Pool::Crew& crew) {
            crew.share(static_cast<int>(rows), [&](int r) {
                table.keep_finite(keys + r * k.stride(0), cache.keys + places[r] * size, size, key_limit_);
                table.keep_finite(values + r * v.stride(0), cache.values + places[r] * size, size, __builtin_inff());
            });
            attention_.run(crew, plan, queries, q.stride(0), cache, window, to);
        });
    }

    CacheLayer<S> layer_of(int layer) const {
        int64_t size = num_slots() * heads_.keys * heads_.dim;
        return {at_ + 2 * layer * size, at_ + (2 * layer + 1) * size};
    }
    int64_t num_slots() const { return static_cast<int64_t>(cache_.shape(2)); }
    int num_layers() const { return static_cast<int>(cache_.shape(0)); }
    const Heads& heads() const { return heads_; }
    float key_limit() const { return key_limit_; }
    int tile_rows() const { return rows_per_tile(heads_); }

   private:
    std::shared_ptr<Machine> machine_;
    Array cache_;
    S* at_;
    Heads heads_;
    float key_limit_;
    std::mutex busy_;  // one batch at a time: its memory is the object's
    Attention<S> attention_;
};

template <typename S>
struct LayerParts {
    Array input_norm, post_norm;
    std::optional<Array> q_norm, k_norm;
    std::shared_ptr<PackedLinear<S>> qkv, o, gate_up, down;
    int window;
};

template <typename S>
class FusedStack {
   public:
    FusedStack(std::shared_ptr<Machine> machine, std::shared_ptr<PagedAttention<S>> attention, std::vector<LayerParts<S>> layers,
               Array final_norm, std::shared_ptr<PackedLinear<S>> head, Array cos, Array sin, float eps, float scale)
        : machine_(std::move(machine)), attention_(std::move(attention)), layers_(std::move(layers)), final_norm_(std::move(final_norm)),
          head_(std::move(head)), cos_(std::move(cos)), sin_(std::move(sin)), hidden_(head_->linear().ins), stack_(build(eps, scale)) {}

    void forward(const Array& x, const Array& positions, const Array& slots, const Plan& plan, int begin, int end) {
        S* at = numbers<S>(x, "x", {kAny, hidden_});
        int64_t rows = static_cast<int64_t>(x.shape(0));
        const int64_t* where = numbers<int64_t>(positions, "positions", {rows});
        const int64_t* places = numbers<int64_t>(slots, "slots", {rows});
        check_plan(plan, rows, attention_->num_slots());
        check_slots(places, rows, attention_->num_slots());
        for (int64_t i = 0; i < rows; ++i)
            if (where[i] < 0 || where[i] >= static_cast<int64_t>(cos_.shape(0)))
                throw std::invalid_argument("positions must be in [0, " + std::to_string(cos_.shape(0)) + "); got " + std::to_string(where[i]) + ".");
        if (begin < 0 || begin > end || end > static_cast<int>(layers_.size()))
            throw std::invalid_argument("layers must be a range within [0, " + std::to_string(layers_.size()) + "]; got [" +
                                        std::to_string(begin) + ", " + std::to_string(end) + "].");
        nb::gil_scoped_release free;
        std::lock_guard alone(busy_);
        if (rows && begin < end) stack_.forward(at, where, places, plan, begin, end);
    }

    void logits(const Array& x, const std::optional<Array>& rows, const Array& out) {
        const S* at = numbers<S>(x, "x", {kAny, hidden_});
        int64_t count = static_cast<int64_t>(rows ? rows->shape(0) : x.shape(0));
        const int64_t* which = rows ? numbers<int64_t>(*rows, "rows", {count}) : nullptr;
        for (int64_t i = 0; which && i < count; ++i)
            if (which[i] < 0 || which[i] >= static_cast<int64_t>(x.shape(0)))
                throw std::invalid_argument("rows must be in [0, " + std::to_string(x.shape(0)) + "); got " + std::to_string(which[i]) + ".");
        float* to = numbers<float>(out, "out", {count, head_->linear().outs});
        nb::gil_scoped_release free;
        std::lock_guard alone(busy_);
        if (count) stack_.logits(at, which, static_cast<int>(count), to);
    }

   private:
    Stack<S> build(float eps, float scale) {
        const Heads& heads = attention_->heads();
        int qkv = (heads.queries + 2 * heads.keys) * heads.dim, query = heads.queries * heads.dim;
        const float* cos = numbers<float>(cos_, "cos", {kAny, 1, kAny});
        int rotary = static_cast<int>(cos_.shape(2)), inner = layers_.empty() ? 0 : layers_[0].down->linear().ins;
        Shape shape{hidden_, inner, heads, eps, scale, attention_->key_limit(), rotary,
                    cos, numbers<float>(sin_, "sin", {static_cast<int64_t>(cos_.shape(0)), 1, rotary})};
        check_rotary(cos_, heads.dim);
        if (static_cast<int>(layers_.size()) > attention_->num_layers())
            throw std::invalid_argument("layers must be at most the cache's " + std::to_string(attention_->num_layers()) + "; got " +
                                        std::to_string(layers_.size()) + ".");
        std::vector<Layer<S>> layers;
        for (size_t i = 0; i < layers_.size(); ++i) {
            const LayerParts<S>& part = layers_[i];
            auto gain = [&](const Array& a, int size) { return static_cast<const S*>(numbers<S>(a, "norm weight", {size})); };
            auto fits = [&](const PackedLinear<S>& p, const char* name, int outs, int ins) {
                if (p.linear().outs != outs || p.linear().ins != ins)
                    throw std::invalid_argument(std::string(name) + " must be [" + std::to_string(outs) + ", " + std::to_string(ins) + "]; got [" +
                                                std::to_string(p.linear().outs) + ", " + std::to_string(p.linear().ins) + "].");
                return p.linear();
            };
            check_window(part.window);
            if (inner % kLanes)
                throw std::invalid_argument("the intermediate size must be a multiple of " + std::to_string(kLanes) + "; got " + std::to_string(inner) + ".");
            layers.push_back({gain(part.input_norm, hidden_), fits(*part.qkv, "qkv", qkv, hidden_),
                              part.q_norm ? gain(*part.q_norm, heads.dim) : nullptr, part.k_norm ? gain(*part.k_norm, heads.dim) : nullptr,
                              fits(*part.o, "o", hidden_, query), gain(part.post_norm, hidden_), fits(*part.gate_up, "gate_up", 2 * inner, hidden_),
                              fits(*part.down, "down", hidden_, inner), attention_->layer_of(static_cast<int>(i)), part.window});
        }
        return Stack<S>(table_of<S>(machine_->kernels), machine_->pool, shape, std::move(layers), gain_of_final(), head_->linear());
    }
    const S* gain_of_final() const { return numbers<S>(final_norm_, "final norm", {hidden_}); }

    std::shared_ptr<Machine> machine_;
    std::shared_ptr<PagedAttention<S>> attention_;
    std::vector<LayerParts<S>> layers_;
    Array final_norm_;
    std::shared_ptr<PackedLinear<S>> head_;
    std::mutex busy_;
    Array cos_, sin_;
    int hidden_;
    Stack<S> stack_;
};

template <typename S>
void bind(nb::module_ m) {
    nb::class_<PackedLinear<S>>(m, "PackedLinear")
        .def(nb::init<std::shared_ptr<Machine>, const Array&, const std::optional<Array>&>(), nb::arg("machine"), nb::arg("weight"),
             nb::arg("bias").none())
        .def("run", &PackedLinear<S>::run, nb::arg("x"), nb::arg("out"));
    m.def("rms_norm", &rms_norm<S>);
    m.def("rotary", &rotary<S>);
    m.def("silu_and_multiply", &silu_and_multiply<S>);
    nb::class_<PagedAttention<S>>(m, "PagedAttention")
        .def(nb::init<std::shared_ptr<Machine>, Array, int, float, float>(), nb::arg("machine"), nb::arg("cache"), nb::arg("query_heads"),
             nb::arg("scale"), nb::arg("key_limit"))
        .def("run", &PagedAttention<S>::run)
        .def_prop_ro("rows_per_tile", &PagedAttention<S>::tile_rows);
    nb::class_<LayerParts<S>>(m, "LayerParts")
        .def("__init__",
             [](LayerParts<S>* self, Array input_norm, std::shared_ptr<PackedLinear<S>> qkv, std::optional<Array> q_norm,
                std::optional<Array> k_norm, std::shared_ptr<PackedLinear<S>> o, Array post_norm, std::shared_ptr<PackedLinear<S>> gate_up,
                std::shared_ptr<PackedLinear<S>> down, int window) {
                 new (self) LayerParts<S>{std::move(input_norm), std::move(post_norm), std::move(q_norm), std::move(k_norm), std::move(qkv),
                                          std::move(o), std::move(gate_up), std::move(down), window};
             },
             nb::kw_only(), nb::arg("input_norm"), nb::arg("qkv"), nb::arg("q_norm").none(), nb::arg("k_norm").none(), nb::arg("o"),
             nb::arg("post_norm"), nb::arg("gate_up"), nb::arg("down"), nb::arg("window"));
    nb::class_<FusedStack<S>>(m, "FusedStack")
        .def(nb::init<std::shared_ptr<Machine>, std::shared_ptr<PagedAttention<S>>, std::vector<LayerParts<S>>, Array,
                      std::shared_ptr<PackedLinear<S>>, Array, Array, float, float>(),
             nb::kw_only(), nb::arg("machine"), nb::arg("attention"), nb::arg("layers"), nb::arg("final_norm"), nb::arg("head"),
             nb::arg("cos"), nb::arg("sin"), nb::arg("eps"), nb::arg("scale"))
        .def("forward", &FusedStack<S>::forward)
        .def("logits", &FusedStack<S>::logits, nb::arg("x"), nb::arg("rows").none(), nb::arg("out"));
}

}  // namespace

}  // namespace specserve

using namespace specserve;

NB_MODULE(_native, m) {
    nb::set_leak_warnings(false);
    m.def("instruction_sets", &instruction_sets);
    nb::class_<Machine>(m, "Machine")
        .def(nb::init<const std::string&, int>(), nb::arg("instruction_set"), nb::arg("threads"))
        .def_prop_ro("instruction_set", [](const Machine& machine) { return machine.kernels.name; })
        .def_prop_ro("threads", [](const Machine& machine) { return machine.pool->size(); });
    bind_sampler(m);
    nb::class_<Plan>(m, "Plan")
        .def("__init__",
             [](Plan* self, int block_size, int rows_per_tile) {
                 if (block_size < 1 || rows_per_tile < 1) throw std::invalid_argument("block_size and rows_per_tile must be at least 1.");
                 new (self) Plan(block_size, rows_per_tile);
             },
             nb::arg("block_size"), nb::arg("rows_per_tile"))
        .def(
            "add",
            [](Plan& plan, int start, int length, int known, const std::vector<int32_t>& blocks, const std::vector<int32_t>& parents) {
                if (!plan.add(start, length, known, blocks, parents))
                    throw std::invalid_argument("a request of " + std::to_string(length) + " rows from token " + std::to_string(start) +
                                                " does not fit its " + std::to_string(blocks.size()) + " blocks or its draft's parents.");
            },
            nb::arg("start"), nb::arg("length"), nb::arg("known"), nb::arg("blocks"), nb::arg("parents"))
        .def_prop_ro("num_rows", &Plan::num_rows);
    nb::module_ bf16 = m.def_submodule("bfloat16"), f32 = m.def_submodule("float32");
    bind<Bf16>(bf16);
    bind<float>(f32);
}
