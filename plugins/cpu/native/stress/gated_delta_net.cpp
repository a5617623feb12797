// Gated delta nets over two steps of some requests, the second behind accepted draft tokens: a request has the bits
// that it has alone, and its numbers are near those in float64, token by token.
#include <algorithm>
#include <cmath>

#include "stress/delta_reference.hpp"
#include "stress/stress.hpp"

namespace specserve {

namespace {

constexpr int kMostNodes = 7;

DeltaShape random_delta_shape(Random& random) {
    int key_heads = between(random, 1, 2);
    return {key_heads, key_heads * between(random, 1, 3), between(random, 1, 20), between(random, 1, 80),
            between(random, 1, kMaxTaps)};
}

struct RandomDeltaWeights {
    RandomDeltaWeights(Random& random, const DeltaShape& shape)
        : taps(random_numbers<float>(random, static_cast<size_t>(shape.taps * shape.channels()))),
          dt_bias(random_numbers<float>(random, static_cast<size_t>(shape.value_heads))),
          rate(random_numbers<float>(random, static_cast<size_t>(shape.value_heads))),
          norm(random_numbers<float>(random, static_cast<size_t>(shape.value_dim))) {
        for (float& x : rate) x = -std::fabs(x);
    }
    // A small epsilon would make much of what rounding does to an output near zero.
    DeltaWeights weights() const { return {taps.data(), dt_bias.data(), rate.data(), norm.data(), 0.1f}; }

    std::vector<float> taps, dt_bias, rate, norm;
};

// One request: its rows in a first step, a tree of draft tokens among them, and in a second one, behind a path of the
// tree. The states are those before and behind the first step, behind the second one, and saved ones of either.
template <typename S>
struct DeltaRequest {
    DeltaRequest(Random& random, const DeltaShape& own_shape)
        : shape(own_shape), known(between(random, 0, 9) ? between(random, 1, 12) : between(random, 100, 300)),
          next(between(random, 1, 5)), saved_first(between(random, 0, known - 1)) {
        int node = -1;
        for (int i = 0, count = between(random, 0, kMostNodes); i < count; ++i)
            parents.push_back(between(random, -1, i - 1));
        if (!parents.empty()) node = between(random, -1, static_cast<int>(parents.size()) - 1);
        for (; node >= 0; node = parents[static_cast<size_t>(node)]) path.insert(path.begin(), node);
        saved_second = between(random, 0, static_cast<int>(path.size()) + next - 1);
        size_t num_rows = static_cast<size_t>(known + next) + parents.size();
        rows = random_numbers<S>(random, num_rows * row_size());
        start = random_numbers<float>(random, static_cast<size_t>(shape.state_size()));
        clear();
    }

    size_t row_size() const { return static_cast<size_t>(shape.row_size()); }
    const S* row(int i) const { return rows.data() + static_cast<size_t>(i) * row_size(); }
    DeltaTrail<S> trail(int node) {
        return {trails.data() + node * shape.trail_width(), updates.data() + node * shape.out_features()};
    }

    void clear() {
        size_t num_rows = rows.size() / row_size();
        outputs.assign(num_rows * static_cast<size_t>(shape.out_features()), S{});
        trails.assign(parents.size() * static_cast<size_t>(shape.trail_width()), S{});
        updates.assign(parents.size() * static_cast<size_t>(shape.out_features()), 0.0f);
        for (std::vector<float>* state : {&behind_first, &behind_second, &of_first, &of_second})
            state->assign(start.size(), 0.0f);
    }

    void add_row(DeltaRun<S>& run, int i) {
        run.rows.push_back(row(i));
        run.outputs.push_back(outputs.data() + i * shape.out_features());
    }
    DeltaRun<S> first_run() {
        DeltaRun<S> run{
            start.data(), behind_first.data(), known, {}, {}, {}, parents, {}, {{saved_first, of_first.data()}}};
        int num_nodes = static_cast<int>(parents.size());
        for (int i = 0; i < known + num_nodes; ++i) add_row(run, i);
        for (int node = 0; node < num_nodes; ++node) run.trails.push_back(trail(node));
        return run;
    }
    DeltaRun<S> second_run() {
        int followed = static_cast<int>(path.size()), begin = known + static_cast<int>(parents.size());
        DeltaRun<S> run{behind_first.data(),
                        behind_second.data(),
                        followed + next,
                        {},
                        {},
                        {},
                        {},
                        {},
                        {{saved_second, of_second.data()}}};
        for (int node : path) {
            run.rows.push_back(trail(node).row);
            run.updates.push_back(trail(node).update);
            run.outputs.push_back(nullptr);
        }
        for (int i = begin; i < begin + next; ++i) add_row(run, i);
        return run;
    }
    bool operator==(const DeltaRequest& other) const {
        return same_bits(outputs.data(), other.outputs.data(), outputs.size()) &&
               same_bits(trails.data(), other.trails.data(), trails.size()) && start == other.start &&
               behind_first == other.behind_first && behind_second == other.behind_second &&
               of_first == other.of_first && of_second == other.of_second;
    }

    DeltaShape shape;
    int known, next, saved_first, saved_second;
    std::vector<int> parents, path;
    std::vector<S> rows, outputs, trails;
    std::vector<float> updates, start, behind_first, behind_second, of_first, of_second;
};

template <typename S>
void take_steps(const GatedDeltaNet<S>& net, std::vector<DeltaRequest<S>>& requests) {
    std::vector<DeltaRun<S>> first, second;
    for (DeltaRequest<S>& request : requests) first.push_back(request.first_run());
    net.mix(first);
    for (DeltaRequest<S>& request : requests) second.push_back(request.second_run());
    net.mix(second);
}

template <typename T>
void require_near(const T* got, const std::vector<double>& exact, const std::string& what) {
    double most = 1, off = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
        most = std::max(most, std::fabs(exact[i]));
        off = std::max(off, std::fabs(exact[i] - to_double(got[i])));
    }
    require(off <= most * std::ldexp(1, sizeof(T) == 2 ? -4 : -12), what + std::to_string(off / most));
}

// The same in float64: where the kernels round to S, a number near the middle of two may become the other one.
template <typename S>
void check_by_reference(const DeltaRequest<S>& request, const DeltaWeights& weights, const std::string& name) {
    const DeltaShape& shape = request.shape;
    ReferenceState state(request.start.begin(), request.start.end());
    auto step = [&](ReferenceState& of, int row) {
        std::vector<double> out = reference_step(shape, weights, of, request.row(row));
        require_near(request.outputs.data() + row * shape.out_features(), out, name + ": an output is off by ");
    };
    auto check_state = [&](const std::vector<float>& got) {
        if constexpr (sizeof(S) == 4) require_near(got.data(), state, name + ": a state is off by ");
    };
    for (int i = 0; i < request.known; ++i) {
        step(state, i);
        if (i == request.saved_first) check_state(request.of_first);
    }
    check_state(request.behind_first);
    std::vector<ReferenceState> of_nodes;
    for (int parent : request.parents) {
        int row = request.known + static_cast<int>(of_nodes.size());
        of_nodes.push_back(parent < 0 ? state : of_nodes[static_cast<size_t>(parent)]);
        step(of_nodes.back(), row);
    }
    int begin = request.known + static_cast<int>(request.parents.size());
    if (!request.path.empty()) state = of_nodes[static_cast<size_t>(request.path.back())];
    for (int i = 0; i < request.next; ++i) step(state, begin + i);
    check_state(request.behind_second);
}

}  // namespace

template <typename S>
void check_gated_delta_net(const Kernels& kernels, std::shared_ptr<DeltaWorkspace> workspace, Random& random) {
    DeltaShape shape = random_delta_shape(random);
    RandomDeltaWeights weights(random, shape);
    const KernelTable<S>& table = kernel_table<S>(kernels);
    GatedDeltaNet<S> net(table, workspace, shape, weights.weights());
    auto pool = std::make_shared<ThreadPool>(between(random, 1, 4));
    GatedDeltaNet<S> other(table, std::make_shared<DeltaWorkspace>(pool), shape, weights.weights());
    std::vector<DeltaRequest<S>> requests;
    for (int i = 0, count = between(random, 1, 4); i < count; ++i) requests.emplace_back(random, shape);
    size_t place = static_cast<size_t>(between(random, 0, static_cast<int>(requests.size()) - 1));
    std::vector<DeltaRequest<S>> alone{requests[place]};
    const std::vector<float> start = alone[0].start;
    take_steps(net, requests);
    take_steps(other, alone);
    take_steps(other, alone);  // a step may be computed again
    std::string name(kernels.name);
    require(requests[place] == alone[0], name + ": a request depends on the others, or on the threads");
    require(alone[0].start == start, name + ": the state before a step was changed");
    check_by_reference(alone[0], weights.weights(), name);
    record(alone[0].outputs.data(), alone[0].outputs.size());
    record(alone[0].behind_second.data(), alone[0].behind_second.size());
}

template void check_gated_delta_net<Bf16>(const Kernels&, std::shared_ptr<DeltaWorkspace>, Random&);
template void check_gated_delta_net<float>(const Kernels&, std::shared_ptr<DeltaWorkspace>, Random&);

}  // namespace specserve
