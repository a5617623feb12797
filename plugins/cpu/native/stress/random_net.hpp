// A random gated delta net, and the memory of the states of some requests: slot 0 is zero, and each has one of its own.
#pragma once

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "ops/gated_delta_net.hpp"
#include "stress/stress.hpp"

namespace specserve {

// A request's tokens in a batch: committed ones, then draft tokens.
struct RunOfBatch {
    int committed;
    std::vector<int> parents;
};

template <typename S>
struct RandomNet {
    explicit RandomNet(Random& random) {
        int key_heads = between(random, 1, 2);
        shape = {key_heads, key_heads * between(random, 1, 2), between(random, 1, 20), 2 * between(random, 1, 40),
                 between(random, 1, 4)};
        auto numbers = [&](int count) { return random_numbers<float>(random, static_cast<size_t>(count)); };
        taps = numbers(shape.taps * shape.channels());
        dt_bias = numbers(shape.value_heads);
        rate = numbers(shape.value_heads);
        for (float& each : rate) each = -std::fabs(each);
        norm = numbers(shape.value_dim);
    }

    GatedDeltaNet<S> net(const Kernels& kernels, std::shared_ptr<ThreadPool> pool) const {
        DeltaWeights weights{taps.data(), dt_bias.data(), rate.data(), norm.data(), 1e-5f};
        return {kernel_table<S>(kernels), std::make_shared<DeltaWorkspace>(std::move(pool)), shape, weights};
    }

    DeltaShape shape{};
    std::vector<float> taps, dt_bias, rate, norm;
};

template <typename S>
struct RandomStates {
    RandomStates(const DeltaShape& own, const std::vector<RunOfBatch>& batch)
        : shape(own), states((batch.size() + 1) * static_cast<size_t>(shape.state_size())) {
        size_t drafts = 0;
        for (const RunOfBatch& run : batch) drafts += run.parents.size();
        trails.resize(drafts * static_cast<size_t>(shape.trail_width()));
        updates.resize(drafts * static_cast<size_t>(shape.out_features()));
    }

    std::vector<DeltaRun<S>> runs(const std::vector<RunOfBatch>& batch, Rows<const S> rows, S* out) {
        std::vector<DeltaRun<S>> all;
        DeltaTrail<S> trail{trails.data(), updates.data()};
        float* target = states.data();
        for (ptrdiff_t row = 0; const RunOfBatch& from : batch) {
            target += shape.state_size();
            DeltaRun<S> run{states.data(), target, from.committed, {}, {}, {}, from.parents, {}, {}};
            for (size_t i = 0; i < from.parents.size(); ++i) {
                run.trails.push_back(trail);
                trail = {trail.row + shape.trail_width(), trail.update + shape.out_features()};
            }
            for (size_t i = 0; i < static_cast<size_t>(from.committed) + from.parents.size(); ++i, ++row) {
                run.rows.push_back(rows.data + row * rows.stride);
                run.outputs.push_back(out + row * shape.out_features());
            }
            all.push_back(std::move(run));
        }
        return all;
    }

    bool operator==(const RandomStates& other) const {
        return same_bits(states.data(), other.states.data(), states.size()) &&
               same_bits(trails.data(), other.trails.data(), trails.size()) &&
               same_bits(updates.data(), other.updates.data(), updates.size());
    }

    DeltaShape shape;
    std::vector<float> states;
    std::vector<S> trails;
    std::vector<float> updates;
};

}  // namespace specserve
