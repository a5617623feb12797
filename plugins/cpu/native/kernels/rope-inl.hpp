// Rotary position embedding (Su et al., 2021) in the rotate-half form, in float32, rounded once.

template <typename S>
static void apply_rope(S* head, RopeAngles angles) {
    int half = angles.rotary_dim / 2;
    for (int i = 0; i < half; i += kLanes) {
        int n = half - i < kLanes ? half - i : kLanes;
        Vec a = load(head + i, n), b = load(head + half + i, n);
        Vec low = fma(b, load(angles.sin + i, n), mul(a, load(angles.cos + i, n)));
        Vec high = fma(a, load(angles.sin + half + i, n), mul(b, load(angles.cos + half + i, n)));
        store(head + i, low, n);
        store(head + half + i, high, n);
    }
}
