#include "runtime/packed_weights.hpp"

#include <algorithm>

namespace specserve {

namespace {

template <typename S>
size_t num_weights(const Linear<S>& shape) {
    return static_cast<size_t>(shape.num_panels()) * static_cast<size_t>(shape.panel_stride());
}
template <typename S>
size_t padded_outputs(const Linear<S>& shape) {
    return static_cast<size_t>(shape.num_panels()) * kLanes;
}

template <typename S>
size_t num_scales(const Linear<S>& shape, const QuantizedRows& weight) {
    return padded_outputs(shape) * static_cast<size_t>(weight.groups(shape.in_features));
}

}  // namespace

template <typename S>
PackedWeights<S>::PackedWeights(ThreadPool& pool, const S* weight, const S* bias, int out_features, int in_features)
    : linear_{nullptr, nullptr, in_features, out_features}, panels_(num_weights(linear_) * sizeof(S)),
      bias_(bias ? padded_outputs(linear_) * sizeof(S) : 0), scales_(0), corrections_(0) {
    pack_panels(pool, weight, [](int out, int in) { return out * kVnni<S> + in; });
    pack_bias(bias);
}

template <typename S>
PackedWeights<S>::PackedWeights(ThreadPool& pool, const QuantizedRows& weight, InputKind inputs, const S* bias,
                                int out_features, int in_features)
    : linear_{nullptr, nullptr, in_features, out_features}, panels_(0),
      bias_(bias ? padded_outputs(linear_) * sizeof(S) : 0), scales_(num_scales(linear_, weight) * sizeof(float)),
      corrections_(inputs == InputKind::kQuantized ? num_scales(linear_, weight) * sizeof(int32_t) : 0) {
    linear_.group_size = weight.group_size;
    pack_scales(weight);
    if (inputs == InputKind::kQuantized) sum_integers(weight);
    panels_ = HugePageBuffer(num_weights(linear_));
    if (linear_.corrections)
        pack_panels(pool, weight.integers, [](int out, int in) { return out * kVnni<QuantizedInput> + in; });
    else
        pack_panels(pool, weight.integers, [](int out, int in) { return in * kLanes + out; });
    pack_bias(bias);
}

template <typename S>
PackedWeights<S>::PackedWeights(std::unique_ptr<CodedMatrix> coded, InputKind inputs, const S* bias)
    : coded_(std::move(coded)), panels_(0), bias_(0), scales_(0), corrections_(0) {
    linear_ = {nullptr, nullptr, coded_->in_features(), coded_->outputs()};
    linear_.coded = {coded_->panels(), inputs == InputKind::kModelDtype};
    if (bias) bias_ = HugePageBuffer(padded_outputs(linear_) * sizeof(S));
    pack_bias(bias);
}

template <typename S>
void PackedWeights<S>::widen(int output, float* weights) const {
    if (coded_) return coded_->widen(output, weights);
    const int8_t* panel = panels_.get<int8_t>() + ptrdiff_t{output / kLanes} * linear_.panel_stride();
    int lane = output % kLanes, of_group = linear_.inputs_of_k_group();
    for (int in = 0; in < linear_.in_features; ++in) {
        int i = in % of_group, place = linear_.corrections ? lane * of_group + i : i * kLanes + lane;
        ptrdiff_t group = in / linear_.group_size * static_cast<ptrdiff_t>(padded_outputs(linear_));
        weights[in] = static_cast<float>(panel[(in - i) * kLanes + place]) * linear_.scales[group + output];
    }
}

template <typename S>
void PackedWeights<S>::pack_scales(const QuantizedRows& weight) {
    int groups = weight.groups(linear_.in_features);
    float* scales = scales_.get<float>();
    ptrdiff_t padded = static_cast<ptrdiff_t>(padded_outputs(linear_));
    for (ptrdiff_t g = 0; g < groups; ++g)
        for (ptrdiff_t out = 0; out < padded; ++out)
            scales[g * padded + out] = out < linear_.out_features ? weight.scales[out * groups + g] : 0.0f;
    linear_.scales = scales;
}

template <typename S>
void PackedWeights<S>::sum_integers(const QuantizedRows& weight) {
    int in_features = linear_.in_features, groups = weight.groups(in_features);
    int32_t* corrections = corrections_.get<int32_t>();
    ptrdiff_t padded = static_cast<ptrdiff_t>(padded_outputs(linear_));
    std::memset(corrections, 0, static_cast<size_t>(groups * padded) * sizeof(int32_t));
    for (ptrdiff_t out = 0; out < linear_.out_features; ++out)
        for (int g = 0, in = 0; g < groups; ++g) {
            int32_t sum = 0;
            for (int end = std::min(in_features, in + weight.group_size); in < end; ++in)
                sum += weight.integers[out * in_features + in];
            corrections[g * padded + out] = kInputOffset * sum;
        }
    linear_.corrections = corrections;
}

// offset(output, input): where a weight stands in its K group.
template <typename S>
template <typename W, typename Offset>
void PackedWeights<S>::pack_panels(ThreadPool& pool, const W* weight, Offset offset) {
    linear_.panels = panels_.get<void>();
    int in_features = linear_.in_features;
    int of_group = linear_.inputs_of_k_group();
    auto pack_panel = [&](int p) {
        W* to = panels_.get<W>() + p * linear_.panel_stride();
        const W* rows = weight + ptrdiff_t{p} * kLanes * in_features;
        int outputs = std::min(kLanes, linear_.out_features - p * kLanes);
        if (outputs < kLanes || in_features % of_group)
            std::memset(to, 0, static_cast<size_t>(linear_.panel_stride()) * sizeof(W));
        for (int in = 0; in < in_features; in += of_group, to += kLanes * of_group)
            for (int out = 0; out < outputs; ++out)
                for (int i = 0; i < std::min(of_group, in_features - in); ++i)
                    to[offset(out, i)] = rows[ptrdiff_t{out} * in_features + in + i];
    };
    pool.run(1, [&](ThreadPool::Team& team) { team.parallel_for(linear_.num_panels(), pack_panel); });
}

template <typename S>
void PackedWeights<S>::pack_bias(const S* bias) {
    if (!bias) return;
    std::memset(bias_.get<S>(), 0, padded_outputs(linear_) * sizeof(S));
    std::memcpy(bias_.get<S>(), bias, static_cast<size_t>(linear_.out_features) * sizeof(S));
    linear_.bias = bias_.get<S>();
}

template class PackedWeights<Bf16>;
template class PackedWeights<float>;

}  // namespace specserve
