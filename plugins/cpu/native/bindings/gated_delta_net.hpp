// Gated delta nets of a layer whose weights Python owns. The runs of a step come as one list of integers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/tuple.h>

#include "bindings/bind.hpp"
#include "ops/gated_delta_net.hpp"

namespace specserve {

// Key heads, value heads, their sizes, taps.
using DeltaNumbers = std::tuple<int, int, int, int, int>;

inline DeltaShape checked_shape(const DeltaNumbers& numbers) {
    auto [key_heads, value_heads, key_dim, value_dim, taps] = numbers;
    if (key_heads < 1 || value_heads < 1 || value_heads % key_heads)
        throw std::invalid_argument("value heads must be a multiple of the key heads; got " +
                                    std::to_string(value_heads) + " and " + std::to_string(key_heads) + ".");
    if (key_dim < 1 || value_dim < 1)
        throw std::invalid_argument("heads must have numbers; got sizes " + std::to_string(key_dim) + " and " +
                                    std::to_string(value_dim) + ".");
    if (taps < 1 || taps > kMaxTaps)
        throw std::invalid_argument("taps must be in [1, " + std::to_string(kMaxTaps) + "]; got " +
                                    std::to_string(taps) + ".");
    return {key_heads, value_heads, key_dim, value_dim, taps};
}

// Reads one integer after the other, each within what is allowed.
class RunReader {
   public:
    explicit RunReader(const std::vector<int64_t>& numbers) : numbers_(numbers) {}
    bool is_done() const { return next_ == numbers_.size(); }
    int next(const char* name, int64_t least, int64_t end) {
        if (is_done()) throw std::invalid_argument(std::string("runs end before ") + name + ".");
        int64_t number = numbers_[next_++];
        if (number < least || number >= end)
            throw std::invalid_argument(std::string(name) + " must be in [" + std::to_string(least) + ", " +
                                        std::to_string(end) + "); got " + std::to_string(number) + ".");
        return static_cast<int>(number);
    }

   private:
    const std::vector<int64_t>& numbers_;
    size_t next_ = 0;
};

template <typename S>
class PyGatedDeltaNet {
   public:
    PyGatedDeltaNet(const Machine& machine, std::shared_ptr<DeltaWorkspace> workspace, const DeltaNumbers& numbers,
                    Array taps, Array dt_bias, Array rate, Array norm, float eps)
        : taps_(std::move(taps)), dt_bias_(std::move(dt_bias)), rate_(std::move(rate)), norm_(std::move(norm)),
          net_(kernel_table<S>(machine.kernels), std::move(workspace), checked_shape(numbers),
               checked_weights(checked_shape(numbers), eps)) {}

    void mix(const Array& rows, const Array& states, const Array& trails, const Array& updates, nb::handle runs,
             const Array& out) const {
        const DeltaShape& shape = net_.shape();
        const S* inputs = checked_data<S>(rows, "rows", {kAny, shape.row_size()}, 1);
        int count = static_cast<int>(rows.shape(0));
        S* outputs = checked_data<S>(out, "out", {count, shape.out_features()});
        std::vector<int64_t> numbers;
        append(runs, "runs", kAny, numbers);
        std::vector<DeltaRun<S>> own =
            read_runs(numbers, {inputs, rows.stride(0), count}, outputs, {states, trails, updates});
        nb::gil_scoped_release no_gil;
        net_.mix(own);
    }

    // A layer's memory of states.
    struct States {
        const Array &states, &trails, &updates;
    };
    // out: [rows.count][out_features].
    std::vector<DeltaRun<S>> read_runs(const std::vector<int64_t>& numbers, Rows<const S> rows, S* out,
                                       const States& of_layer) const {
        const DeltaShape& shape = net_.shape();
        auto& [states, trails, updates] = of_layer;
        S* first_trail = checked_data<S>(trails, "trails", {kAny, kAny, shape.trail_width()});
        int64_t num_trails = static_cast<int64_t>(trails.shape(0)), nodes = static_cast<int64_t>(trails.shape(1));
        Memory memory{checked_data<float>(states, "states", {kAny, shape.state_size()}, 1),
                      first_trail,
                      checked_data<float>(updates, "updates", {num_trails, nodes, shape.out_features()}),
                      states.stride(0),
                      static_cast<int64_t>(states.shape(0)),
                      num_trails,
                      nodes};
        std::vector<DeltaRun<S>> runs;
        for (RunReader reader(numbers); !reader.is_done();) runs.push_back(read_run(reader, rows, out, memory));
        return runs;
    }

    const GatedDeltaNet<S>& net() const { return net_; }

   private:
    struct Memory {
        float* states;
        S* trails;
        float* updates;
        ptrdiff_t state_stride;
        int64_t num_states, num_trails, most_nodes;
    };

    DeltaWeights checked_weights(const DeltaShape& shape, float eps) const {
        return {checked_data<float>(taps_, "taps", {shape.taps, shape.channels()}),
                checked_data<float>(dt_bias_, "dt_bias", {shape.value_heads}),
                checked_data<float>(rate_, "rate", {shape.value_heads}),
                checked_data<float>(norm_, "norm", {shape.value_dim}), eps};
    }

    // source, target, position, first row, known; then counts and what is counted: followed, parents, saved.
    DeltaRun<S> read_run(RunReader& reader, Rows<const S> rows, S* out, const Memory& memory) const {
        const DeltaShape& shape = net_.shape();
        DeltaRun<S> run{};
        int source = reader.next("source", 0, memory.num_states), target = reader.next("target", 1, memory.num_states);
        if (source == target) throw std::invalid_argument("source and target must be two slots.");
        run.source = memory.states + source * memory.state_stride;
        run.target = memory.states + target * memory.state_stride;
        int position = reader.next("position", 0, INT32_MAX);
        int64_t first_row = reader.next("first row", 0, rows.count + 1);
        int known = reader.next("known", 0, rows.count - first_row + 1);
        int num_followed = reader.next("followed tokens", 0, memory.most_nodes + 1);
        auto trail = [&](int slot, ptrdiff_t node) -> DeltaTrail<S> {
            if (slot >= memory.num_trails)
                throw std::invalid_argument("slot " + std::to_string(slot) + " has no trail.");
            ptrdiff_t index = slot * memory.most_nodes + node;
            return {memory.trails + index * shape.trail_width(), memory.updates + index * shape.out_features()};
        };
        for (int i = 0; i < num_followed; ++i) {
            DeltaTrail<S> left = trail(source, reader.next("followed token", 0, memory.most_nodes));
            run.rows.push_back(left.row);
            run.updates.push_back(left.update);
            run.outputs.push_back(nullptr);
        }
        run.committed = num_followed + known;
        int num_drafts = reader.next("draft tokens", 0, memory.most_nodes + 1);
        if (first_row + known + num_drafts > rows.count)
            throw std::invalid_argument("a run ends behind the " + std::to_string(rows.count) + " rows.");
        for (int node = 0; node < num_drafts; ++node) {
            run.parents.push_back(reader.next("parent", -1, node));
            run.trails.push_back(trail(target, node));
        }
        for (int64_t row = first_row; row < first_row + known + num_drafts; ++row) {
            run.rows.push_back(rows.data + row * rows.stride);
            run.outputs.push_back(out + row * shape.out_features());
        }
        int num_saved = reader.next("saved states", 0, memory.num_states);
        for (int i = 0, least = position + 1; i < num_saved; ++i) {
            int tokens = reader.next("saved position", least, INT64_C(1) + position + run.committed);
            int slot = reader.next("saved slot", 1, memory.num_states);
            run.saved.push_back({tokens - position - 1, memory.states + slot * memory.state_stride});
            least = tokens + 1;
        }
        return run;
    }

    Array taps_, dt_bias_, rate_, norm_;
    GatedDeltaNet<S> net_;
};

}  // namespace specserve
