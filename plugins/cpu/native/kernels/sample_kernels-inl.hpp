// Argmax with and without Gumbel noise, exp sums and selection over one row. Included after attend.hpp.
//
// Passes are built so that a row's result is a function of its logits alone: maxima are exact, sums have one order.

#include "kernels/gumbel-inl.hpp"
#include "kernels/select-inl.hpp"

constexpr float kNoLogit = -__builtin_inff();
constexpr float kMostNoise = 23.0f;  // the noise of h = 0 is 22.874
constexpr float kSlack = 1e-6f;      // relative: far more than a division and an addition can round away
constexpr float kLog2 = 0.69314718056f;

// Sixteen numbers from x + t on; those from `end` on are -inf.
INLINE F logits_at(const float* x, int t, int end) {
    return t + kLanes <= end ? load(x + t) : keep(load(x + t, end - t), end - t, kNoLogit);
}

// Blocks whose maximum is larger than all before are remembered: the token is looked for at the end, in one block.
static Peak peak(const float* x, int begin, int end) {
    constexpr int kBlock = 32 * kLanes;
    float best = kNoLogit;
    int block = begin;
    for (int b = begin; b < end; b += kBlock) {
        int stop = b + kBlock < end ? b + kBlock : end;
        F tops[4] = {splat(kNoLogit), splat(kNoLogit), splat(kNoLogit), splat(kNoLogit)};
        int t = b;
        for (; t + 4 * kLanes <= stop; t += 4 * kLanes)
            for (int i = 0; i < 4; ++i) tops[i] = max(load(x + t + i * kLanes), tops[i]);
        for (; t < stop; t += kLanes) tops[0] = max(logits_at(x, t, stop), tops[0]);
        float top = maximum(max(max(tops[0], tops[1]), max(tops[2], tops[3])));
        if (top > best) {
            best = top;
            block = b;
        }
    }
    if (best == kNoLogit) return {kNoLogit, begin};
    for (int t = block;; t += kLanes)
        if (unsigned equal = at_least(logits_at(x, t, end), splat(best))) return {best, t + __builtin_ctz(equal)};
}

INLINE F uniform_at(uint64_t key, int t) { return uniform(hashed(key + (static_cast<uint64_t>(t) + 1) * kGamma)); }

static void noise(uint64_t key, int size, float* out) {
    for (int t = 0; t < size; t += kLanes)
        store(out + t, gumbel(uniform_at(key, t)), size - t < kLanes ? size - t : kLanes);
}

// The scores of sixteen tokens against the best so far.
INLINE void consider(F x, F w, int t, const Noise& noise, Peak* best) {
    float scores[kLanes];
    store(scores, add(div(x, splat(noise.temperature)), gumbel(w)));
    for (unsigned open = at_least(x, splat(noise.least)); open; open &= open - 1) {
        int i = __builtin_ctz(open);
        if (scores[i] > best->value || (scores[i] == best->value && t + i < best->token)) *best = {scores[i], t + i};
    }
}

// Logits below this cannot win against `best`, whatever their noise.
INLINE float hopeless_below(const Noise& noise, float best) {
    float size = best < 0.0f ? -best : best;
    if (!(size < 1e30f)) return noise.least;
    float border = (best - kMostNoise - kSlack * size) * noise.temperature;
    return border > noise.least ? border : noise.least;
}

// Logarithms are computed only where a bound of the noise could win: -log(1 - w) >= w, so the noise is at most -log w;
// and w = 2^n (1 + m) has log2 w >= n + m, which is what w's bits say when they are read as a whole number. Rounding is
// monotone, so the bound's score is never below the score: what is skipped could not have won.
static Peak noisy_peak(const float* x, int size, int begin, int end, Noise noise, int likely) {
    Peak best = {kNoLogit, likely};
    int first = likely / kLanes * kLanes;
    consider(logits_at(x, first, size), uniform_at(noise.key, first), first, noise, &best);
    F border = splat(hopeless_below(noise, best.value)), goal = splat(best.value),
      temperature = splat(noise.temperature);
    const F slope = splat(-kLog2 / 8388608.0f), offset = splat(127.0f * kLog2 + 1e-3f);
    for (int t = begin; t < end; t += kLanes) {
        F logits = logits_at(x, t, end);
        if (!at_least(logits, border)) continue;
        F w = uniform_at(noise.key, t);
        F most = add(div(logits, temperature), fma(bits_of(w), slope, offset));
        if (!at_least(most, goal)) continue;
        consider(logits, w, t, noise, &best);
        border = splat(hopeless_below(noise, best.value));
        goal = splat(best.value);
    }
    return best;
}

static void divide(const float* x, int size, float by, float* out) {
    F divisor = splat(by);
    for (int t = 0; t < size; t += kLanes)
        store(out + t, max(div(logits_at(x, t, size), divisor), splat(kNoLogit)),
              size - t < kLanes ? size - t : kLanes);
}

static Sampling sampling() { return {peak, noisy_peak, noise, divide, mass, weigh, keep_least, find_least, select}; }
