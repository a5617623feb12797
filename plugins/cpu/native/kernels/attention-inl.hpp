// Attention of a few queries over one segment of keys, and the merge of segments: what all layouts of the cache share.
// Included after rowwise.hpp.
//
// A segment is always the same kSegment keys of a request's path, counted from its first, and segments merge first to
// last: a query's bits follow from its own keys alone. Scores are chains over the head's numbers, weighted values are
// chains over the segment's keys; keys that a query does not see weigh exactly 0.

constexpr float kNothing = -__builtin_inff(), kLog2E = 1.44269504088896341f;

INLINE size_t padded_dim(int head_dim) { return static_cast<size_t>(divided_up(head_dim, kLanes)) * kLanes; }

// What a segment needs beside its results (see `attend_scratch`).
template <typename S>
struct Scratch {
    Scratch(const Attend<S>& a, char* memory)
        : packed(reinterpret_cast<S*>(memory)), copies(packed + kSegment * padded_dim(a.head_dim)),
          masses(copies + kSegment * padded_dim(a.head_dim)),
          scores(reinterpret_cast<float*>(masses + ptrdiff_t{a.count} * kSegment)) {}

    S* packed;      // keys, then values, as panels one after the other
    S* copies;      // keys, then values, from slots of different pages
    S* masses;      // [count][kSegment]: what each key weighs
    float* scores;  // [count][kSegment]
};

// One query's scores, in units of ln 2, into weights, in place of the first `padded` of `to`; keys outside [low, high)
// weigh 0.
template <typename S>
INLINE void weigh(const float* scores, float scale, int low, int high, int padded, S* to, float* most, float* total) {
    F best = splat(kNothing), times = splat(scale * kLog2E);
    F seen[kSegment / kLanes];
    for (int k = 0; k < padded; k += kLanes) {
        seen[k / kLanes] = mul(load(scores + k), times);
        // most queries see most segments whole
        if (k < low)
            seen[k / kLanes] =
                where_less(iota(), splat(static_cast<float>(low - k)), splat(kNothing), seen[k / kLanes]);
        if (k + kLanes > high) seen[k / kLanes] = keep(seen[k / kLanes], high > k ? high - k : 0, kNothing);
        best = max(seen[k / kLanes], best);
    }
    float peak = maximum(best);
    F sums = zeros();
    for (int k = 0; k < padded; k += kLanes) {
        F weight = rounded(exp2_of_negative(sub(seen[k / kLanes], splat(peak))), to);
        sums = add(sums, weight);
        store(to + k, weight);
    }
    *most = peak;
    *total = sum(sums);
}

// Every query's scores into weights; `between` is called before each.
template <typename S, typename Between>
INLINE void weigh_all(const Attend<S>& a, const Scratch<S>& scratch, Partial out, Between between) {
    int padded = divided_up(a.num_keys, kLanes) * kLanes;
    for (int q = 0; q < a.count; ++q) {
        between();
        S* masses = scratch.masses + ptrdiff_t{q} * kSegment;
        int high = a.lengths[q] - a.first, low = a.window ? high - a.window : 0;
        high = high < a.num_keys ? high : a.num_keys;
        low = low > 0 ? low : 0;
        if (low >= high) {  // sees none of these keys: `merge` passes it by
            out.most[q] = kNothing;
            out.total[q] = 0.0f;
            for (int k = 0; k < padded; k += kLanes) store(masses + k, zeros());
            continue;
        }
        weigh(scratch.scores + ptrdiff_t{q} * kSegment, a.scale, low, high, padded, masses, out.most + q,
              out.total + q);
    }
}

// The later segment's part onto the earlier ones' (Milakov and Gimelshein, 2018).
static void merge(Partial into, Partial from, int count, int head_dim) {
    ptrdiff_t wide = static_cast<ptrdiff_t>(padded_dim(head_dim));
    for (int q = 0; q < count; ++q) {
        if (from.total[q] == 0.0f) continue;
        bool fresh = into.total[q] == 0.0f;
        float peak = fresh || from.most[q] > into.most[q] ? from.most[q] : into.most[q];
        F old = fresh ? zeros() : exp2_of_negative(splat(into.most[q] - peak)),
          later = exp2_of_negative(splat(from.most[q] - peak));
        for (ptrdiff_t i = q * wide; i < (q + 1) * wide; i += kLanes) {
            F kept = fresh ? zeros() : mul(load(into.values + i), old);
            store(into.values + i, fma(load(from.values + i), later, kept));
        }
        F total = fma(splat(from.total[q]), later, fresh ? zeros() : mul(splat(into.total[q]), old));
        into.total[q] = first_of(total);
        into.most[q] = peak;
    }
}

// Adding 0 turns -0 into +0: how many zeros a query's sums met depends on its neighbours.
template <typename S>
static void conclude(Partial state, int count, int head_dim, S* out) {
    ptrdiff_t wide = static_cast<ptrdiff_t>(padded_dim(head_dim));
    for (int q = 0; q < count; ++q) {
        F share = splat(1.0f / state.total[q]);
        for (int i = 0; i < head_dim; i += kLanes) {
            F mean = add(mul(load(state.values + q * wide + i), share), zeros());
            store(out + ptrdiff_t{q} * head_dim + i, mean, head_dim - i < kLanes ? head_dim - i : kLanes);
        }
    }
}
