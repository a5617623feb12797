// The table of one instruction set; included last, in its namespace.

template <typename S>
static Table<S> table() {
    return {linear_store<S>, linear_add<S>, linear_gated<S>, linear_logits<S>, norm<S>,  activate<S>, plus<S>,
            rotate<S>,       keep_finite<S>, attend<S>,       merge,            conclude<S>};
}
