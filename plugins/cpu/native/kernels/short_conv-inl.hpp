// Gated short convolution (LFM2), channel by channel. Products and sums are rounded each, as torch does it.

// in: rows of B, C and x, `size` of each. Of the channels in `range`, writes B * x of every row to its slot, and
// C * conv(B * x) to `out`. The tokens before a row that are rows of the same batch come before it.
template <typename S>
static void short_conv(const ShortConv<S>& conv, Rows<const S> in, const PrecedingSlots& tokens, ChannelRange range,
                       Rows<S> out) {
    const float* own_tap = conv.weight + ptrdiff_t{conv.reach} * conv.size;
    for (int r = 0; r < in.count; ++r) {
        const S *b = in.data + r * in.stride, *c = b + conv.size, *x = c + conv.size;
        int64_t slot = tokens.slots[r];
        const int64_t* before = tokens.before + r * tokens.stride;
        S* kept = slot < 0 ? nullptr : conv.kept + slot * conv.size;
        for (int i = range.begin; i < range.end; i += kLanes) {
            int n = range.end - i < kLanes ? range.end - i : kLanes;
            Vec gated = round_to(mul(load(b + i, n), load(x + i, n)), in.data);
            if (kept) store(kept + i, gated, n);
            Vec total = mul(gated, load(own_tap + i, n));
            for (int d = 0; d < conv.reach; ++d) {
                Vec part = zeros();  // added too: -0 + 0 is 0
                if (before[d] >= 0)
                    part = mul(load(conv.kept + before[d] * conv.size + i, n),
                               load(own_tap - ptrdiff_t{d + 1} * conv.size + i, n));
                total = add(total, part);
            }
            if (conv.bias) total = add(total, load(conv.bias + i, n));
            store(out.data + r * out.stride + i, mul(load(c + i, n), round_to(total, in.data)), n);
        }
    }
}
