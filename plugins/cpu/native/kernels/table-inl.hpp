// The table of one instruction set; included last, in its namespace.

template <typename S>
static Table<S> table() {
    return {linear_store<S>,
            linear_add<S>,
            linear_gated<S>,
            linear_logits<S>,
            norm<S>,
            activate<S>,
            plus<S>,
            rotate<S>,
            merge,
            conclude<S>,
            {1, keep_by_slot<S>, take_by_slot<S>, attend_by_slot<S>},
            {kPage, keep_in_panels<S>, take_from_panels<S>, attend_in_panels<S>}};
}
