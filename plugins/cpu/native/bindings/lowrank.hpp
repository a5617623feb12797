// Adapters that Python holds: packed low-rank parts, checked against each other.
#pragma once

#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/linear.hpp"
#include "ops/lowrank.hpp"

namespace specserve {

// What an adapter adds to one projection of `ins` inputs and at least `outs` outputs.
template <typename S>
class LowRankParts {
   public:
    using Part =
        std::tuple<std::shared_ptr<PackedLinear<S>>, std::shared_ptr<PackedLinear<S>>, int>;  // down, up, first output

    explicit LowRankParts(std::vector<Part> parts) : kept_(std::move(parts)) {
        for (const auto& [down, up, first] : kept_) {
            const Linear<S>&d = down->linear(), &u = up->linear();
            if (d.outs != u.ins || d.outs > kMostRank)
                throw std::invalid_argument("down must have as many outputs as up has inputs, at most " +
                                            std::to_string(kMostRank) + "; got " + std::to_string(d.outs) + " and " +
                                            std::to_string(u.ins) + ".");
            if (first < 0)
                throw std::invalid_argument("the first output must be at least 0; got " + std::to_string(first) + ".");
            if (ins && d.ins != ins)
                throw std::invalid_argument("parts of one projection must have as many inputs; got " +
                                            std::to_string(ins) + " and " + std::to_string(d.ins) + ".");
            ins = d.ins;
            outs = std::max(outs, first + u.outs);
            parts_.push_back({d, u, first});
        }
    }

    const LowRank<S>& parts() const { return parts_; }
    int ins = 0, outs = 0;

   private:
    std::vector<Part> kept_;
    LowRank<S> parts_;
};

// An adapter of a whole model: for every layer its parts of qkv, o, gate_up and down.
template <typename S>
class AdapterParts {
   public:
    using Parts = std::optional<std::shared_ptr<LowRankParts<S>>>;
    using LayerOf = std::tuple<Parts, Parts, Parts, Parts>;

    explicit AdapterParts(std::vector<LayerOf> layers) : kept_(std::move(layers)) {
        auto of = [](const Parts& parts) { return parts ? (*parts)->parts() : LowRank<S>{}; };
        for (const auto& [qkv, o, gate_up, down] : kept_)
            adapter_.layers.push_back({of(qkv), of(o), of(gate_up), of(down)});
    }

    const Adapter<S>& adapter() const { return adapter_; }

    // Throws unless the adapter is of a model of these sizes: inputs and outputs of qkv, o, gate_up and down.
    void check(const int (&sizes)[4][2]) const {
        for (const LayerOf& layer : kept_) {
            auto fits = [&](const Parts& parts, const int (&size)[2], const char* name) {
                if (parts && (*parts)->ins && ((*parts)->ins != size[0] || (*parts)->outs > size[1]))
                    throw std::invalid_argument(
                        "the adapter's " + std::string(name) + " must have " + std::to_string(size[0]) +
                        " inputs and at most " + std::to_string(size[1]) + " outputs; got " +
                        std::to_string((*parts)->ins) + " and " + std::to_string((*parts)->outs) + ".");
            };
            fits(std::get<0>(layer), sizes[0], "qkv");
            fits(std::get<1>(layer), sizes[1], "o");
            fits(std::get<2>(layer), sizes[2], "gate_up");
            fits(std::get<3>(layer), sizes[3], "down");
        }
    }

   private:
    std::vector<LayerOf> kept_;
    Adapter<S> adapter_;
};

template <typename S>
using AdapterSegment = std::tuple<int, int, std::shared_ptr<AdapterParts<S>>>;  // rows [begin, end)

inline void check_segment(int begin, int end, int64_t rows) {
    if (begin < 0 || begin > end || end > rows)
        throw std::invalid_argument("segments must be ranges within [0, " + std::to_string(rows) + "]; got [" +
                                    std::to_string(begin) + ", " + std::to_string(end) + "].");
}

}  // namespace specserve
