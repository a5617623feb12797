// LoRA adapters that Python owns: packed low-rank parts, checked against each other.
#pragma once

#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/linear.hpp"
#include "ops/lowrank.hpp"

namespace specserve {

// The low-rank parts of one projection of `in_features` inputs and at least `out_features` outputs.
template <typename S>
class LowRankParts {
   public:
    using Part =
        std::tuple<std::shared_ptr<PackedLinear<S>>, std::shared_ptr<PackedLinear<S>>, int>;  // down, up, first output

    explicit LowRankParts(std::vector<Part> parts) : owned_(std::move(parts)) {
        for (const auto& [down, up, first] : owned_) {
            const Linear<S>&d = down->linear(), &u = up->linear();
            if (d.out_features != u.in_features || d.out_features > kMaxRank)
                throw std::invalid_argument("the outputs of down must be the inputs of up, at most " +
                                            std::to_string(kMaxRank) + "; got " + std::to_string(d.out_features) +
                                            " and " + std::to_string(u.in_features) + ".");
            if (first < 0)
                throw std::invalid_argument("the first output must be at least 0; got " + std::to_string(first) + ".");
            if (in_features && d.in_features != in_features)
                throw std::invalid_argument("parts of one projection must have the same inputs; got " +
                                            std::to_string(in_features) + " and " + std::to_string(d.in_features) +
                                            ".");
            in_features = d.in_features;
            out_features = std::max(out_features, first + u.out_features);
            parts_.push_back({d, u, first});
        }
    }

    const LowRank<S>& parts() const { return parts_; }
    int in_features = 0, out_features = 0;

   private:
    std::vector<Part> owned_;
    LowRank<S> parts_;
};

// Inputs and outputs of a layer's qkv, o, gate_up, down, router and attention's gate, and of an expert's gate_up and
// down.
struct LayerSizes {
    int qkv[2], o[2], gate_up[2], down[2], router[2], gate[2], expert_gate_up[2], expert_down[2];
};

// An adapter of a whole model: of each layer the parts of qkv, o, gate_up, down, the router and attention's gate, and
// of every expert those of gate_up and down.
template <typename S>
class PackedAdapter {
   public:
    using Parts = std::optional<std::shared_ptr<LowRankParts<S>>>;
    using ExpertParts = std::vector<std::pair<Parts, Parts>>;
    using LayerParts = std::tuple<Parts, Parts, Parts, Parts, Parts, Parts, ExpertParts>;

    explicit PackedAdapter(std::vector<LayerParts> layers) : owned_(std::move(layers)) {
        auto of = [](const Parts& parts) { return parts ? (*parts)->parts() : LowRank<S>{}; };
        for (const auto& [qkv, o, gate_up, down, router, gate, experts] : owned_) {
            adapter_.layers.push_back({of(qkv), of(o), of(gate_up), of(down), of(router), of(gate)});
            for (const auto& [expert_gate_up, expert_down] : experts)
                adapter_.layers.back().experts.push_back({of(expert_gate_up), of(expert_down)});
        }
    }

    const Adapter<S>& adapter() const { return adapter_; }

    // Throws unless the adapter fits the model. sizes_of: the `LayerSizes` of a layer.
    template <typename SizesOf>
    void check(int num_layers, SizesOf sizes_of) const {
        if (static_cast<int>(owned_.size()) > num_layers)
            throw std::invalid_argument("the adapter must be of at most " + std::to_string(num_layers) +
                                        " layers; got " + std::to_string(owned_.size()) + ".");
        for (size_t i = 0; i < owned_.size(); ++i) {
            const LayerParts& layer = owned_[i];
            const LayerSizes sizes = sizes_of(static_cast<int>(i));
            auto check_projection = [&](const Parts& parts, const int (&size)[2], const char* name) {
                if (parts && (*parts)->in_features &&
                    ((*parts)->in_features != size[0] || (*parts)->out_features > size[1]))
                    throw std::invalid_argument(
                        "the adapter's " + std::string(name) + " must have " + std::to_string(size[0]) +
                        " inputs and at most " + std::to_string(size[1]) + " outputs; got " +
                        std::to_string((*parts)->in_features) + " and " + std::to_string((*parts)->out_features) + ".");
            };
            check_projection(std::get<0>(layer), sizes.qkv, "qkv");
            check_projection(std::get<1>(layer), sizes.o, "o");
            check_projection(std::get<2>(layer), sizes.gate_up, "gate_up");
            check_projection(std::get<3>(layer), sizes.down, "down");
            check_projection(std::get<4>(layer), sizes.router, "router");
            check_projection(std::get<5>(layer), sizes.gate, "gate");
            for (const auto& [gate_up, down] : std::get<6>(layer)) {
                check_projection(gate_up, sizes.expert_gate_up, "expert's gate_up");
                check_projection(down, sizes.expert_down, "expert's down");
            }
        }
    }

   private:
    std::vector<LayerParts> owned_;
    Adapter<S> adapter_;
};

template <typename S>
using PackedSegment = std::tuple<int, int, std::shared_ptr<PackedAdapter<S>>>;  // rows [begin, end)

inline void check_segment(int begin, int end, int64_t rows) {
    if (begin < 0 || begin > end || end > rows)
        throw std::invalid_argument("segments must be ranges within [0, " + std::to_string(rows) + "]; got [" +
                                    std::to_string(begin) + ", " + std::to_string(end) + "].");
}

}  // namespace specserve
