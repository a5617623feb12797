// Attention of a tile of queries over one segment of keys, and the merge of segments: common to all KV layouts.
//
// Segments are aligned: each is the same kSegmentKeys keys of a sequence, counted from its first, and they merge first
// to last. Scores are chains over head_dim, outputs are chains over the segment's keys, and masked keys have
// probability exactly 0. So a query's bits depend on its own keys alone.
//
// W is what the cache keeps of a number (see kv_elements-inl.hpp).

constexpr float kNegInf = -__builtin_inff(), kLog2E = 1.44269504088896341f;

// Scratch memory of one KV head in a call, of `attention_scratch_bytes`. The heads share `packed`.
template <typename S>
struct AttentionScratch {
    AttentionScratch(const AttentionArgs<S>& args, int head, char* memory)
        : packed(reinterpret_cast<S*>(memory)),
          gathered(packed + (1 + head) * kSegmentKeys * static_cast<ptrdiff_t>(padded_head_dim(args.head_dim))) {
        ptrdiff_t heads = args.num_heads, rows = args.num_queries;
        S* all_probs = packed + (1 + heads) * kSegmentKeys * static_cast<ptrdiff_t>(padded_head_dim(args.head_dim));
        float* all_scores = reinterpret_cast<float*>(all_probs + heads * rows * kSegmentKeys);
        float* all_scales = all_scores + heads * rows * kSegmentKeys;
        probs = all_probs + head * rows * kSegmentKeys;
        scores = all_scores + head * rows * kSegmentKeys;
        key_scales = all_scales + ptrdiff_t{head} * 2 * kSegmentKeys;
        value_scales = key_scales + kSegmentKeys;
    }

    S* packed;            // keys, then values, as contiguous panels
    S* gathered;          // keys, then values, of slots that are no whole page, or widened
    S* probs;             // [num_queries][kSegmentKeys], unnormalized
    float* scores;        // [num_queries][kSegmentKeys]
    float* key_scales;    // [kSegmentKeys], where the cache has scales
    float* value_scales;  // [kSegmentKeys]
};

// The keys of a segment that a query sees, [low, high), of `padded`.
struct VisibleKeys {
    int low, high, padded;
};

// A score as the exponent of a power of 2: `factor` times a product of a query and a key, as it is or capped.
struct PlainScore {
    explicit PlainScore(float scale, float /*soft_cap*/) : factor(splat(scale * kLog2E)) {}
    Vec operator()(Vec scaled) const { return scaled; }

    Vec factor;
};
struct CappedScore {
    CappedScore(float scale, float soft_cap) : factor(splat(scale / soft_cap)), cap(splat(soft_cap * kLog2E)) {}
    Vec operator()(Vec scaled) const { return mul(tanh(scaled), cap); }

    Vec factor, cap;
};

// Unnormalized softmax of one query's scores, in base 2: probs[k] = 2^(score - row_max) for keys that it sees, times
// the scale of the key's value, and 0 for the others. row_sum: of the probabilities without scales.
template <typename W, typename S, typename Score>
INLINE void softmax_row(const AttentionScratch<S>& scratch, int query, const Score& score, VisibleKeys keys,
                        PartialAttention out) {
    const float* scores = scratch.scores + ptrdiff_t{query} * kSegmentKeys;
    S* probs = scratch.probs + ptrdiff_t{query} * kSegmentKeys;
    int low = keys.low, high = keys.high;
    Vec max_lanes = splat(kNegInf);
    Vec masked[kSegmentKeys / kLanes];
    for (int k = 0; k < keys.padded; k += kLanes) {
        Vec factor = score.factor;
        if constexpr (kScaleBytes<W> > 0) factor = mul(load(scratch.key_scales + k), factor);
        masked[k / kLanes] = score(mul(load(scores + k), factor));
        // most queries see all keys of most segments
        if (k < low)
            masked[k / kLanes] =
                where_less(iota(), splat(static_cast<float>(low - k)), splat(kNegInf), masked[k / kLanes]);
        if (k + kLanes > high) masked[k / kLanes] = replace_tail(masked[k / kLanes], high > k ? high - k : 0, kNegInf);
        max_lanes = max(masked[k / kLanes], max_lanes);
    }
    float max_score = reduce_max(max_lanes);
    Vec sums = zeros();
    for (int k = 0; k < keys.padded; k += kLanes) {
        Vec prob = exp2_nonpositive(sub(masked[k / kLanes], splat(max_score)));
        if constexpr (kScaleBytes<W> > 0) {
            sums = add(sums, prob);
            store(probs + k, mul(prob, load(scratch.value_scales + k)));
        } else {
            prob = round_to(prob, probs);
            sums = add(sums, prob);
            store(probs + k, prob);
        }
    }
    out.row_max[query] = max_score;
    out.row_sum[query] = reduce_sum(sums);
}

template <typename W, typename Score, typename S, typename Callback>
INLINE void softmax_rows_of(const AttentionArgs<S>& args, const AttentionScratch<S>& scratch, PartialAttention out,
                            Callback before_row) {
    Score score(args.scale, args.rules.soft_cap);
    int padded = ceil_div(args.num_keys, kLanes) * kLanes;
    for (int q = 0; q < args.num_queries; ++q) {
        before_row();
        int high = args.kv_lens[q] - args.first_key, low = args.rules.window ? high - args.rules.window : 0;
        high = high < args.num_keys ? high : args.num_keys;
        if (low < args.min_key - args.first_key) low = args.min_key - args.first_key;
        low = low > 0 ? low : 0;
        if (low >= high) {  // all keys are masked: `merge_segments` skips the query
            out.row_max[q] = kNegInf;
            out.row_sum[q] = 0.0f;
            for (int k = 0; k < padded; k += kLanes) store(scratch.probs + ptrdiff_t{q} * kSegmentKeys + k, zeros());
            continue;
        }
        softmax_row<W>(scratch, q, score, {low, high, padded}, out);
    }
}

// All queries; calls `before_row` before each.
template <typename W, typename S, typename Callback>
INLINE void softmax_rows(const AttentionArgs<S>& args, const AttentionScratch<S>& scratch, PartialAttention out,
                         Callback before_row) {
    if (args.rules.soft_cap == 0.0f)
        softmax_rows_of<W, PlainScore>(args, scratch, out, before_row);
    else
        softmax_rows_of<W, CappedScore>(args, scratch, out, before_row);
}

// Online softmax (Milakov and Gimelshein, 2018): adds a later segment to the earlier ones.
static void merge_segments(PartialAttention into, PartialAttention later, int num_queries, int head_dim) {
    ptrdiff_t width = static_cast<ptrdiff_t>(padded_head_dim(head_dim));
    for (int q = 0; q < num_queries; ++q) {
        if (later.row_sum[q] == 0.0f) continue;
        bool is_first = into.row_sum[q] == 0.0f;
        float row_max = is_first || later.row_max[q] > into.row_max[q] ? later.row_max[q] : into.row_max[q];
        Vec into_scale = is_first ? zeros() : exp2_nonpositive(splat(into.row_max[q] - row_max));
        Vec later_scale = exp2_nonpositive(splat(later.row_max[q] - row_max));
        for (ptrdiff_t i = q * width; i < (q + 1) * width; i += kLanes) {
            Vec rescaled = is_first ? zeros() : mul(load(into.acc + i), into_scale);
            store(into.acc + i, fma(load(later.acc + i), later_scale, rescaled));
        }
        Vec row_sum =
            fma(splat(later.row_sum[q]), later_scale, is_first ? zeros() : mul(splat(into.row_sum[q]), into_scale));
        into.row_sum[q] = first_lane(row_sum);
        into.row_max[q] = row_max;
    }
}

// After the last segment: a further key of every query, whose score is its head's sink and whose value is 0.
static void add_sinks(PartialAttention state, const float* sinks, int group_size, int num_queries, int head_dim) {
    ptrdiff_t width = static_cast<ptrdiff_t>(padded_head_dim(head_dim));
    for (int q = 0; q < num_queries; ++q) {
        float sink = sinks[q % group_size] * kLog2E;
        bool is_first = state.row_sum[q] == 0.0f;
        float row_max = is_first || sink > state.row_max[q] ? sink : state.row_max[q];
        Vec scale = is_first ? zeros() : exp2_nonpositive(splat(state.row_max[q] - row_max));
        for (ptrdiff_t i = q * width; i < (q + 1) * width; i += kLanes)
            store(state.acc + i, is_first ? zeros() : mul(load(state.acc + i), scale));
        Vec row_sum = is_first ? zeros() : mul(splat(state.row_sum[q]), scale);
        state.row_sum[q] = first_lane(add(row_sum, exp2_nonpositive(splat(sink - row_max))));
        state.row_max[q] = row_max;
    }
}

// out = acc / row_sum. Adding 0 turns -0 into +0: the number of zeros that a query accumulates depends on its tile.
template <typename S>
static void normalize(PartialAttention state, int num_queries, int head_dim, S* out) {
    ptrdiff_t width = static_cast<ptrdiff_t>(padded_head_dim(head_dim));
    for (int q = 0; q < num_queries; ++q) {
        Vec inverse = splat(1.0f / state.row_sum[q]);
        for (int i = 0; i < head_dim; i += kLanes) {
            Vec mean = add(mul(load(state.acc + q * width + i), inverse), zeros());
            store(out + ptrdiff_t{q} * head_dim + i, mean, head_dim - i < kLanes ? head_dim - i : kLanes);
        }
    }
}
