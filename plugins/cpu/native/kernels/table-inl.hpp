// The tables of one instruction set.

// W: what a number is kept as.
template <typename S, typename W>
static KVLayout<S> by_slot() {
    return {1,
            sizeof(W),
            kScaleBytes<W>,
            store_kv_by_slot<S, W>,
            read_slot_by_slot,
            write_slot_by_slot,
            attend_segment_by_slot<S, W>,
            1};
}
template <typename S, typename W>
static KVLayout<S> in_panels() {
    return {kPageSlots,
            sizeof(W),
            kScaleBytes<W>,
            store_kv_in_panels<S, W>,
            read_slot_in_panels<S, W>,
            write_slot_in_panels<S, W>,
            attend_segment_in_panels<S, W>,
            kMaxHeads};
}

template <typename S>
static KernelTable<S> kernel_table() {
    return {linear_table<S>(),
            begin_job,
            end_job,
            rms_norm<S, S>,
            rms_norm<S, float>,
            silu_and_multiply<S>,
            gelu_and_multiply<S>,
            clamped_swiglu<S>,
            scale_inplace<S>,
            add_inplace<S>,
            apply_rope<S>,
            gate<S>,
            widen<S>,
            round_inplace<S>,
            exp_shifted,
            sigmoids<S>,
            weighted_sum<S>,
            merge_segments,
            add_sinks,
            normalize<S>,
            by_slot<S, S>(),
            in_panels<S, S>(),
            by_slot<S, Int8<S>>(),
            in_panels<S, Int8<S>>(),
            short_conv<S>,
            gated_delta_table<S>()};
}

static SamplingTable sampling_table() {
    return {argmax,  gumbel_argmax, gumbel_noise,    draft_scores,     divide,
            sum_exp, exp_shifted,   filter_at_least, indices_at_least, select_threshold};
}
