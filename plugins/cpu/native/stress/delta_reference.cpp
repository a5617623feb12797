#include "stress/delta_reference.hpp"

#include <cmath>
#include <cstring>

#include "stress/stress.hpp"

namespace specserve {

namespace {

template <typename S>
double rounded(double x) {
    float narrow = static_cast<float>(x);
    if constexpr (sizeof(S) == 2) {
        uint32_t bits;
        std::memcpy(&bits, &narrow, 4);
        bits = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u;
        std::memcpy(&narrow, &bits, 4);
    }
    return static_cast<double>(narrow);
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

template <typename S>
std::vector<double> convolved(const DeltaShape& shape, const DeltaWeights& weights, const double* window,
                              const S* row) {
    int channels = shape.channels();
    std::vector<double> mixed(static_cast<size_t>(channels));
    for (int c = 0; c < channels; ++c) {
        double total = to_double(row[c]) * static_cast<double>(weights.taps[c]);
        for (int tap = 1; tap < shape.taps; ++tap)
            total += window[(tap - 1) * channels + c] * static_cast<double>(weights.taps[tap * channels + c]);
        mixed[static_cast<size_t>(c)] = rounded<S>(total * sigmoid(total));
    }
    return mixed;
}

void set_length(double* x, int size, double length) {
    double squares = 1e-6;
    for (int i = 0; i < size; ++i) squares += x[i] * x[i];
    for (int i = 0; i < size; ++i) x[i] *= length / std::sqrt(squares);
}

// S <- e^g S; S <- S + k (beta (v - S^T k))^T. Returns S^T q. head: S [dk][dv].
std::vector<double> delta_rule(double* head, const double* q, const double* k, const double* v, int dk, int dv,
                               double decay, double beta) {
    std::vector<double> out(static_cast<size_t>(dv));
    for (int column = 0; column < dv; ++column) {
        double known = 0;
        for (int i = 0; i < dk; ++i) known += k[i] * (head[i * dv + column] *= decay);
        for (int i = 0; i < dk; ++i) {
            head[i * dv + column] += k[i] * beta * (v[column] - known);
            out[static_cast<size_t>(column)] += q[i] * head[i * dv + column];
        }
    }
    return out;
}

template <typename S>
void norm_and_gate(std::vector<double>& o, const DeltaWeights& weights, const S* gate) {
    double squares = 0;
    for (double& x : o) {
        x = rounded<S>(x);
        squares += x * x;
    }
    double scale = 1 / std::sqrt(squares / static_cast<double>(o.size()) + static_cast<double>(weights.eps));
    for (size_t i = 0; i < o.size(); ++i) {
        double z = to_double(gate[i]);
        o[i] = static_cast<double>(weights.norm[i]) * rounded<S>(o[i] * scale) * z * sigmoid(z);
    }
}

}  // namespace

template <typename S>
std::vector<double> reference_step(const DeltaShape& shape, const DeltaWeights& weights, ReferenceState& state,
                                   const S* row) {
    int dk = shape.key_dim, dv = shape.value_dim, channels = shape.channels();
    double* window = state.data() + shape.window_begin();
    std::vector<double> mixed = convolved(shape, weights, window, row);
    for (int i = (shape.taps - 1) * channels - 1; i >= 0; --i)
        window[i] = i < channels ? to_double(row[i]) : window[i - channels];
    double *q = mixed.data(), *k = q + shape.key_channels(), *v = k + shape.key_channels();
    for (int head = 0; head < shape.key_heads; ++head) {
        set_length(q + head * dk, dk, 1 / std::sqrt(dk));
        set_length(k + head * dk, dk, 1);
    }
    const S *b = row + channels, *a = b + shape.value_heads, *z = a + shape.value_heads;
    std::vector<double> outputs;
    for (int head = 0; head < shape.value_heads; ++head) {
        int of_key = head / (shape.value_heads / shape.key_heads) * dk;
        double step = std::log1p(std::exp(to_double(a[head]) + static_cast<double>(weights.dt_bias[head])));
        double decay = std::exp(static_cast<double>(weights.rate[head]) * step);
        std::vector<double> o = delta_rule(state.data() + head * shape.head_size(), q + of_key, k + of_key,
                                           v + head * dv, dk, dv, decay, rounded<S>(sigmoid(to_double(b[head]))));
        norm_and_gate(o, weights, z + head * dv);
        outputs.insert(outputs.end(), o.begin(), o.end());
    }
    return outputs;
}

template std::vector<double> reference_step(const DeltaShape&, const DeltaWeights&, ReferenceState&, const Bf16*);
template std::vector<double> reference_step(const DeltaShape&, const DeltaWeights&, ReferenceState&, const float*);

}  // namespace specserve
