// exp and log of sixteen lanes, from the lanes' own operations; included after a lane file, in its namespace.

// A float32 model's results need no rounding.
INLINE F rounded(F x, const float*) { return x; }

// e^x, within 2 units in the last place; 0 below -87 and for -inf, e^88.4 above that, NaN for NaN. Range reduction by
// ln 2 in two parts and a polynomial of degree 6 (Cephes, Moshier 1989).
INLINE F exp(F x) {
    F low = splat(-87.33654f);
    F clamped = max(low, min(splat(88.37626f), x));
    F n = round_to_whole(mul(clamped, splat(1.44269504088896341f)));
    F r = fma(n, splat(-0.693359375f), clamped);
    r = fma(n, splat(2.12194440e-4f), r);
    F p = splat(1.9875691500e-4f);
    p = fma(p, r, splat(1.3981999507e-3f));
    p = fma(p, r, splat(8.3334519073e-3f));
    p = fma(p, r, splat(4.1665795894e-2f));
    p = fma(p, r, splat(1.6666665459e-1f));
    p = fma(p, r, splat(5.0000001201e-1f));
    p = add(fma(p, mul(r, r), r), splat(1.0f));
    return where_less(x, low, zeros(), scaled(p, n));
}

// 2^x for x <= 0, within 2 units in the last place; 0 below -126 and for -inf, NaN for NaN (Cephes' exp2f, Moshier
// 1989).
INLINE F exp2_of_negative(F x) {
    F low = splat(-126.0f);
    F clamped = max(low, x);
    F n = round_to_whole(clamped);
    F r = sub(clamped, n);
    F p = splat(1.535336188319500e-4f);
    p = fma(p, r, splat(1.339887440266574e-3f));
    p = fma(p, r, splat(9.618437357674640e-3f));
    p = fma(p, r, splat(5.550332471162809e-2f));
    p = fma(p, r, splat(2.402264791363012e-1f));
    p = fma(p, r, splat(6.931472028550421e-1f));
    p = fma(p, r, splat(1.0f));
    return where_less(x, low, zeros(), scaled(p, n));
}

// x / (1 + e^-x); 0 where e^-x is beyond `exp`
INLINE F silu(F x) { return where_less(x, splat(-88.37626f), zeros(), div(x, add(splat(1.0f), exp(sub(zeros(), x))))); }
