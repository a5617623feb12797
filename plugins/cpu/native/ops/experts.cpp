#include "ops/experts.hpp"

#include <algorithm>
#include <cstring>

#include "ops/linear.hpp"

namespace specserve {

namespace {
constexpr int kExpertTasksPerThread = 8, kPairsPerTask = 16;
constexpr int kRoutedAlone = 4;  // one thread chooses the experts of so few
constexpr int kRowsOfARead = 4;  // as long as weights come from memory, so many rows take no longer than one

// The experts with the highest logits, in order. A NaN is below every number that comes after it.
void highest(const float* logits, int count, int chosen, int32_t* out) {
    for (int e = 0; e < count; ++e) {
        int at = std::min(e, chosen);
        if (at == chosen && !(logits[e] > logits[out[chosen - 1]])) continue;
        at = std::min(at, chosen - 1);
        for (; at > 0 && logits[e] > logits[out[at - 1]]; --at) out[at] = out[at - 1];
        out[at] = e;
    }
}

float sum_of(const float* x, int count) {
    float sum = x[0];
    for (int i = 1; i < count; ++i) sum += x[i];
    return sum;
}

template <typename S>
void choose_by_sigmoids(const KernelTable<S>& table, const Routing& routing, RouterRow<S> row, float* scratch,
                        int32_t* chosen, float* weights) {
    int count = routing.count, k = routing.chosen;
    float *scores = scratch, *wanted = scratch + count;
    table.sigmoids(row.logits, count, scores);
    for (int e = 0; e < count; ++e) wanted[e] = row.choice_bias ? scores[e] + row.choice_bias[e] : scores[e];
    highest(wanted, count, k, chosen);
    for (int i = 0; i < k; ++i) weights[i] = scores[chosen[i]];
    if (routing.renormalizes) {
        float sum = sum_of(weights, k);
        table.round_inplace(&sum, 1);
        sum += routing.added_to_sum;
        table.round_inplace(&sum, 1);
        for (int i = 0; i < k; ++i) weights[i] /= sum;
        table.round_inplace(weights, k);
    }
    for (int i = 0; i < k; ++i) weights[i] *= routing.weight_scale;
    table.round_inplace(weights, k);
}
}  // namespace

template <typename S>
void choose_experts(const KernelTable<S>& table, const Routing& routing, RouterRow<S> row, float* scratch,
                    int32_t* chosen, float* weights) {
    if (routing.scores == Scores::kSigmoid) return choose_by_sigmoids(table, routing, row, scratch, chosen, weights);
    int count = routing.count, k = routing.chosen;
    float *wide = scratch, *exps = scratch + count;
    table.widen(row.logits, count, wide);
    highest(wide, count, k, chosen);
    table.exp_shifted(wide, count, wide[chosen[0]], exps);
    for (int i = 0; i < k; ++i) weights[i] = exps[chosen[i]];
    auto divide = [&](float sum) {
        for (int i = 0; i < k; ++i) weights[i] /= sum;
    };
    divide(routing.scores == Scores::kSoftmax ? sum_of(exps, count) : sum_of(weights, k));
    if (routing.renormalizes) divide(sum_of(weights, k));
    if (routing.rounds) table.round_inplace(weights, k);
}

template <typename S>
void Experts<S>::add(const ExpertLayer<S>& layer) {
    quantizer_.add(layer.router);
    for (const ExpertMaps<S>& maps : layer.experts) {
        quantizer_.add(maps.gate_up);
        quantizer_.add(maps.down);
    }
}

template <typename S>
void Experts<S>::reserve(int rows) {
    const Routing& routing = shape_.routing;
    if (!routing.count) return;
    int block = std::min(rows, kBlock), pairs = num_pairs(block);
    auto grow = [](auto& buffer, int count, int size) {
        size_t needed = static_cast<size_t>(count) * static_cast<size_t>(size);
        if (buffer.size() < needed) buffer.resize(needed);
    };
    grow(logits_, block, routing.count);
    grow(scratch_, block, 2 * routing.count);
    for (auto* by_pair : {&chosen_, &place_, &row_of_, &expert_of_}) grow(*by_pair, pairs, 1);
    grow(weights_, pairs, 1);
    grow(gathered_, pairs, shape_.hidden_size);
    grow(gate_up_, pairs, 2 * shape_.inner_size);
    grow(activated_, pairs, shape_.inner_size);
    grow(given_, pairs, shape_.hidden_size);
    grow(next_place_, routing.count, 1);
    groups_.reserve(static_cast<size_t>(routing.count));
    quantizer_.reserve(pairs);
}

template <typename S>
void Experts<S>::run(Team& team, int index, const ExpertLayer<S>& layer, Rows<const S> x,
                     const Adapter<S>* const* adapters, S* out) {
    for (int begin = 0; begin < x.count; begin += kBlock) {
        int rows = std::min(kBlock, x.count - begin);
        const Adapter<S>* const* own = adapters + begin;
        bool has_adapters = std::any_of(own, own + rows, [](const Adapter<S>* adapter) { return adapter; });
        run_block(team, {index, &layer, {x.data + begin * x.stride, x.stride, rows}, own, has_adapters},
                  out + ptrdiff_t{begin} * shape_.hidden_size);
    }
}

template <typename S>
void Experts<S>::run_block(Team& team, const Block& block, S* out) {
    int rows = block.x.count, pairs = num_pairs(rows);
    ptrdiff_t hidden = shape_.hidden_size, inner = shape_.inner_size;
    multiply(team, table_, block.layer->router, quantizer_, block.x, {logits_.data(), shape_.routing.count, rows});
    choose(team, block);
    team.parallel_for(ceil_div(pairs, kPairsPerTask), [&](int task) {
        for (int p = task * kPairsPerTask; p < std::min(pairs, (task + 1) * kPairsPerTask); ++p) gather(block, p);
    });
    activate(team, block);
    for_each_panels(team, ceil_div(shape_.hidden_size, kLanes), [&](const Group& group, PanelRange range) {
        const Linear<S>& w = block.maps(group.expert).down;
        int count = group.end - group.begin;
        Inputs<S> inputs = quantizer_.inputs_from(w, {activated_.data(), inner, pairs}, group.begin, count);
        table_.linear(w, inputs, range, {given_.data() + group.begin * hidden, hidden, count});
    });
    if (block.has_adapters)
        for_each_run(team, block, [&](int begin, int count, const AdapterLayer<S>* adapter, int expert) {
            if (adapter)
                add_low_rank(table_, adapter->expert(expert).down, {activated_.data() + begin * inner, inner, count},
                             {given_.data() + begin * hidden, hidden, count});
        });
    combine(team, rows, out);
}

// Phases whose number of tasks depends on the choice would not do: a late thread may read it while a later layer
// chooses.
template <typename S>
void Experts<S>::choose(Team& team, const Block& block) {
    const Routing& routing = shape_.routing;
    int rows = block.x.count, count = routing.count, k = routing.chosen;
    auto choose_row = [&](int r) {
        S* logits = logits_.data() + ptrdiff_t{r} * count;
        if (const Adapter<S>* adapter = block.adapters[r])
            if (const AdapterLayer<S>* own = adapter->layer(block.layer_index))
                add_low_rank(table_, own->router, {block.x.data + r * block.x.stride, block.x.stride, 1},
                             {logits, count, 1});
        choose_experts(table_, routing, {logits, block.layer->choice_bias}, scratch_.data() + ptrdiff_t{r} * 2 * count,
                       chosen_.data() + ptrdiff_t{r} * k, weights_.data() + ptrdiff_t{r} * k);
    };
    if (rows > kRoutedAlone) team.parallel_for(rows, choose_row);
    team.parallel_for(1, [&](int) {
        for (int r = 0; rows <= kRoutedAlone && r < rows; ++r) choose_row(r);
        group(rows);
    });
}

// Pairs by expert, those of one expert by row.
template <typename S>
void Experts<S>::group(int rows) {
    int k = shape_.routing.chosen, pairs = num_pairs(rows);
    std::fill(next_place_.begin(), next_place_.end(), 0);
    for (int i = 0; i < pairs; ++i) ++next_place_[static_cast<size_t>(chosen_[static_cast<size_t>(i)])];
    groups_.clear();
    for (int e = 0, begin = 0; e < shape_.routing.count; ++e) {
        int count = next_place_[static_cast<size_t>(e)];
        if (count) groups_.push_back({e, begin, begin + count});
        next_place_[static_cast<size_t>(e)] = begin;
        begin += count;
    }
    for (int i = 0; i < pairs; ++i) {
        int expert = chosen_[static_cast<size_t>(i)], place = next_place_[static_cast<size_t>(expert)]++;
        place_[static_cast<size_t>(i)] = place;
        row_of_[static_cast<size_t>(place)] = i / k;
        expert_of_[static_cast<size_t>(place)] = expert;
    }
}

template <typename S>
void Experts<S>::gather(const Block& block, int pair) {
    ptrdiff_t hidden = shape_.hidden_size;
    const S* from = block.x.data + row_of_[static_cast<size_t>(pair)] * block.x.stride;
    std::memcpy(gathered_.data() + pair * hidden, from, static_cast<size_t>(hidden) * sizeof(S));
    const Linear<S>& w = block.maps(expert_of_[static_cast<size_t>(pair)]).gate_up;
    quantizer_.quantize(table_, w, {gathered_.data(), hidden, pair + 1}, pair, 1);
}

// activated_ of all pairs, as `down` multiplies it.
template <typename S>
void Experts<S>::activate(Team& team, const Block& block) {
    int pairs = num_pairs(block.x.count), inner_size = shape_.inner_size;
    ptrdiff_t hidden = shape_.hidden_size, inner = inner_size;
    bool is_fused = shape_.activation.kind == Activation::kSilu && !block.has_adapters;
    int panels = ceil_div((is_fused ? 1 : 2) * inner_size, kLanes);
    for_each_panels(team, panels, [&](const Group& group, PanelRange range) {
        const Linear<S>& w = block.maps(group.expert).gate_up;
        int count = group.end - group.begin;
        Inputs<S> inputs = quantizer_.inputs_from(w, {gathered_.data(), hidden, pairs}, group.begin, count);
        if (is_fused)
            table_.linear_swiglu(w, inputs, range, {activated_.data() + group.begin * inner, inner, count});
        else
            table_.linear(w, inputs, range, {gate_up_.data() + group.begin * 2 * inner, 2 * inner, count});
    });
    bool quantizes = block.layer->experts[0].down.prepares_inputs();
    if (is_fused && !quantizes) return;
    for_each_run(team, block, [&](int begin, int count, const AdapterLayer<S>* adapter, int expert) {
        S *own = gate_up_.data() + begin * 2 * inner, *to = activated_.data() + begin * inner;
        if (adapter)
            add_low_rank(table_, adapter->expert(expert).gate_up, {gathered_.data() + begin * hidden, hidden, count},
                         {own, 2 * inner, count});
        if (!is_fused)
            shape_.activation(table_, Rows<const S>{own, 2 * inner, count}, inner_size, Rows<S>{to, inner, count});
        quantizer_.quantize(table_, block.maps(expert).down, {activated_.data(), inner, begin + count}, begin, count);
    });
}

template <typename S>
void Experts<S>::combine(Team& team, int rows, S* out) {
    int k = shape_.routing.chosen;
    ptrdiff_t hidden = shape_.hidden_size;
    team.parallel_for_ranges(rows, [&](int begin, int end) {
        const S* given[kMaxChosen];
        for (int r = begin; r < end; ++r) {
            for (int i = 0; i < k; ++i) given[i] = given_.data() + place_[static_cast<size_t>(r * k + i)] * hidden;
            table_.weighted_sum(given, weights_.data() + ptrdiff_t{r} * k, k, shape_.hidden_size, out + r * hidden);
        }
    });
}

// Calls `task(group, range)` for the panels of every chosen expert's map, in parts of equal work: an expert's panels
// weigh as its weights are read once, and as many times more as it has rows beyond what a read hides.
template <typename S>
template <typename Task>
void Experts<S>::for_each_panels(Team& team, int panels, Task task) const {
    int tasks = team.size() == 1 ? 1 : team.size() * kExpertTasksPerThread;
    team.parallel_for(tasks, [&](int i) {
        auto weight = [](const Group& group) { return int64_t{std::max(group.end - group.begin, kRowsOfARead)}; };
        int64_t total = 0;
        for (const Group& group : groups_) total += weight(group) * panels;
        int64_t begin = total * i / tasks, end = total * (i + 1) / tasks, at = 0;
        for (const Group& group : groups_) {
            int64_t of_panel = weight(group), first = at;
            at += of_panel * panels;
            auto panel = [&](int64_t place) {
                return static_cast<int>(std::clamp<int64_t>((place - first + of_panel - 1) / of_panel, 0, panels));
            };
            if (at <= begin || first >= end || panel(begin) >= panel(end)) continue;
            task(group, PanelRange{panel(begin), panel(end)});
        }
    });
}

// Calls `task(begin, count, adapter, expert)` for a few pairs of one expert with the same adapter; null for none.
template <typename S>
template <typename Task>
void Experts<S>::for_each_run(Team& team, const Block& block, Task task) const {
    int pairs = num_pairs(block.x.count);
    team.parallel_for(ceil_div(pairs, kPairsPerTask), [&](int i) {
        int end = std::min(pairs, (i + 1) * kPairsPerTask);
        for (int begin = i * kPairsPerTask, p = begin + 1; begin < end; begin = p++) {
            int expert = expert_of_[static_cast<size_t>(begin)];
            const AdapterLayer<S>* adapter = adapter_of(block, begin);
            while (p < end && expert_of_[static_cast<size_t>(p)] == expert && adapter_of(block, p) == adapter) ++p;
            task(begin, p - begin, adapter, expert);
        }
    });
}

template <typename S>
const AdapterLayer<S>* Experts<S>::adapter_of(const Block& block, int pair) const {
    const Adapter<S>* adapter = block.adapters[row_of_[static_cast<size_t>(pair)]];
    return adapter ? adapter->layer(block.layer_index) : nullptr;
}

template void choose_experts(const KernelTable<Bf16>&, const Routing&, RouterRow<Bf16>, float*, int32_t*, float*);
template void choose_experts(const KernelTable<float>&, const Routing&, RouterRow<float>, float*, int32_t*, float*);
template class Experts<Bf16>;
template class Experts<float>;

}  // namespace specserve
