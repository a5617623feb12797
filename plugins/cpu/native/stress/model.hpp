// A random model of two layers, with experts or without, with gates of attention or without; the first may have a short
// convolution or a gated delta net in place of attention.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "ops/decoder_stack.hpp"
#include "stress/random_linear.hpp"
#include "stress/random_net.hpp"

namespace specserve {

template <typename S>
struct Model {
    Model(ThreadPool& pool, Random& random, HeadShape shape, bool is_target)
        : heads(shape), hidden(between(random, 1, 30) * 2), inter(16 * between(random, 1, 3)),
          has_aux(between(random, 0, 1)) {
        if (is_target) gate_of = static_cast<GateOf>(between(random, 0, 2));
        int qkv = (heads.num_heads + 2 * heads.num_kv_heads) * heads.head_dim, q = heads.num_heads * heads.head_dim;
        int of_numbers = gate_of == GateOf::kNumber ? q : 0, inputs = has_aux ? 2 * hidden : hidden;
        for (auto [out_features, in_features] : {std::pair{qkv + of_numbers, has_aux ? 2 * hidden : hidden},
                                                 {hidden, q},
                                                 {2 * inter, hidden},
                                                 {hidden, inter},
                                                 {kVocab, hidden},
                                                 {heads.num_heads, inputs}}) {
            std::vector<S> bias = random_numbers<S>(random, static_cast<size_t>(out_features));
            linears.push_back(random_linear<S>(pool, random, out_features, in_features, bias.data()).packed);
        }
        if (is_target && between(random, 0, 1)) {
            taps = between(random, 1, 5);
            for (auto [out_features, in_features] : {std::pair{3 * hidden, inputs}, {hidden, hidden}})
                mixer_linears.push_back(random_linear<S>(pool, random, out_features, in_features, nullptr).packed);
            conv_weight = random_numbers<float>(random, static_cast<size_t>((taps + 1) * hidden));
            has_conv_bias = between(random, 0, 1);
        }
        if (is_target && !taps && between(random, 0, 1)) {
            net = std::make_unique<RandomNet<S>>(random);
            const DeltaShape& own = net->shape;
            for (auto [out_features, in_features] : {std::pair{own.row_size(), inputs}, {hidden, own.out_features()}})
                mixer_linears.push_back(random_linear<S>(pool, random, out_features, in_features, nullptr).packed);
        }
        if (is_target && between(random, 0, 1)) {
            routing.count = between(random, 1, 9);
            routing.chosen = between(random, 1, routing.count);
            routing.scores = static_cast<Scores>(between(random, 0, 2));
            routing.renormalizes = between(random, 0, 1);
            routing.rounds = routing.scores == Scores::kSigmoid || between(random, 0, 1);
            routing.added_to_sum = 0.1f;
            if (between(random, 0, 1)) choice_bias = random_numbers<float>(random, static_cast<size_t>(routing.count));
            activation.kind = static_cast<Activation>(between(random, 0, 2));
            auto add = [&](int out_features, int in_features, LinearForm form) {
                expert_linears.push_back(
                    random_linear<S>(pool, random, out_features, in_features, nullptr, form).packed);
            };
            LinearForm of_gate_up = random_form<S>(random, hidden), of_down = random_form<S>(random, inter);
            add(routing.count, hidden, random_form<S>(random, hidden));
            for (int expert = 0; expert < routing.count; ++expert) {
                add(2 * inter, hidden, of_gate_up);
                add(hidden, inter, of_down);
            }
        }
        norm = random_numbers<S>(random, static_cast<size_t>(std::max(hidden, heads.head_dim)));
        angles = random_numbers<float>(random, static_cast<size_t>(kPositions * heads.head_dim));
    }

    DecoderStack<S> stack(const Kernels& kernels, const KVLayout<S>& layout, std::shared_ptr<ThreadPool> pool,
                          KVCacheLayer cache, ScoreRules rules, int min_key, S* kept = nullptr,
                          const GatedDeltaNet<S>* delta = nullptr) const {
        DecoderLayer<S> layer{};
        layer.input_norm = layer.k_norm = layer.mlp_norm = {norm.data()};
        if (rules.window) layer.q_norm = {norm.data()};
        if (has_aux) {
            layer.aux_norm = {norm.data()};
            layer.input_norm = {};
        }
        layer.rotation = {angles.data(), angles.data(), heads.head_dim};
        layer.qkv = linears[0].linear();
        layer.o = linears[1].linear();
        layer.gate_of = gate_of;
        if (gate_of == GateOf::kHead) layer.gate = linears[5].linear();
        layer.gate_up = linears[2].linear();
        layer.down = linears[3].linear();
        if (routing.count) layer.mixture = mixture();
        layer.cache = cache;
        layer.rules = rules;
        DecoderShape shape{hidden, inter, heads, 1e-5f, 0.2f, 1e15f, min_key};
        shape.activation = activation;
        shape.routing = routing;
        shape.expert_size = inter;
        DecoderLayer<S> first = layer;
        if (first_cache.keys) first.cache = first_cache;
        if (taps) {
            const float* bias = has_conv_bias ? conv_weight.data() + ptrdiff_t{taps} * hidden : nullptr;
            first.conv = {conv_weight.data(), bias, taps - 1, hidden, kept};
        }
        first.delta = delta;
        if (!first.attends()) {
            first.qkv = mixer_linears[0].linear();
            first.o = mixer_linears[1].linear();
            first.q_norm = first.k_norm = {};
            first.gate_of = GateOf::kNothing;
            first.gate = {};
        }
        return DecoderStack<S>(kernel_table<S>(kernels), layout, std::move(pool), shape, {first, layer}, {norm.data()},
                               linears[4].linear());
    }

    // The maps of a layer that adapters have parts of, but those of experts: qkv, o, gate_up and down.
    const Linear<S>& linear(size_t layer, size_t i) const {
        return layer == 0 && !mixer_linears.empty() && i < 2 ? mixer_linears[i].linear() : linears[i].linear();
    }

    ExpertLayer<S> mixture() const {
        ExpertLayer<S> layer{expert_linears[0].linear(), {}, choice_bias.empty() ? nullptr : choice_bias.data()};
        for (size_t i = 1; i < expert_linears.size(); i += 2)
            layer.experts.push_back({expert_linears[i].linear(), expert_linears[i + 1].linear()});
        return layer;
    }

    static constexpr int kPositions = 300, kVocab = 37;
    HeadShape heads;
    int hidden, inter;
    bool has_aux;     // every layer reads an auxiliary input, and does not normalize the other
    Routing routing;  // of no experts, where there are none
    std::vector<float> choice_bias;
    ActivationRule activation;
    GateOf gate_of = GateOf::kNothing;  // of layers with attention
    std::unique_ptr<RandomNet<S>> net;  // of the first layer's gated delta net; null for none
    KVCacheLayer first_cache{};         // of the first layer, where it is not the second one's
    int taps = 0;                       // of the first layer's short convolution; 0 for none
    bool has_conv_bias = false;
    std::vector<float> conv_weight;  // and a bias behind it
    // of experts: the router, then gate_up and down of each
    std::vector<PackedWeights<S>> linears, expert_linears, mixer_linears;
    std::vector<S> norm;
    std::vector<float> angles;
};

}  // namespace specserve
