// The tables of one instruction set.

template <typename S>
static KernelTable<S> kernel_table() {
    return {linear<S>,
            linear_add<S>,
            linear_swiglu<S>,
            linear_logits<S>,
            rms_norm<S>,
            silu_and_multiply<S>,
            add_inplace<S>,
            apply_rope<S>,
            merge_segments,
            normalize<S>,
            {1, store_kv_by_slot<S>, load_kv_by_slot<S>, attend_segment_by_slot<S>},
            {kPageSlots, store_kv_in_panels<S>, load_kv_from_panels<S>, attend_segment_in_panels<S>}};
}

static SamplingTable sampling_table() {
    return {argmax,  gumbel_argmax, gumbel_noise,    draft_scores,     divide,
            sum_exp, exp_shifted,   filter_at_least, indices_at_least, select_threshold};
}
