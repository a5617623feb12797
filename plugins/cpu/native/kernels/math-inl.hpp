// exp, exp2, log, tanh, SiLU, sigmoid and GELU of a vector.

// Round to the model's dtype: float32 models need no rounding.
INLINE Vec round_to(Vec x, const float*) { return x; }

// e^x, within 2 ulp; 0 below -87 and for -inf, e^88.4 above 88.4, NaN for NaN. Range reduction by ln 2 in two parts and
// a polynomial of degree 6 (Cephes, Moshier 1989).
INLINE Vec exp(Vec x) {
    Vec low = splat(-87.33654f);
    Vec clamped = max(low, min(splat(88.37626f), x));
    Vec n = nearest_int(mul(clamped, splat(1.44269504088896341f)));
    Vec r = fma(n, splat(-0.693359375f), clamped);
    r = fma(n, splat(2.12194440e-4f), r);
    Vec p = splat(1.9875691500e-4f);
    p = fma(p, r, splat(1.3981999507e-3f));
    p = fma(p, r, splat(8.3334519073e-3f));
    p = fma(p, r, splat(4.1665795894e-2f));
    p = fma(p, r, splat(1.6666665459e-1f));
    p = fma(p, r, splat(5.0000001201e-1f));
    p = add(fma(p, mul(r, r), r), splat(1.0f));
    return where_less(x, low, zeros(), ldexp(p, n));
}

// 2^x for x <= 0, within 2 ulp; 0 below -126 and for -inf, NaN for NaN (Cephes' exp2f, Moshier 1989).
INLINE Vec exp2_nonpositive(Vec x) {
    Vec low = splat(-126.0f);
    Vec clamped = max(low, x);
    Vec n = nearest_int(clamped);
    Vec r = sub(clamped, n);
    Vec p = splat(1.535336188319500e-4f);
    p = fma(p, r, splat(1.339887440266574e-3f));
    p = fma(p, r, splat(9.618437357674640e-3f));
    p = fma(p, r, splat(5.550332471162809e-2f));
    p = fma(p, r, splat(2.402264791363012e-1f));
    p = fma(p, r, splat(6.931472028550421e-1f));
    p = fma(p, r, splat(1.0f));
    return where_less(x, low, zeros(), ldexp(p, n));
}

// log x for normal positive x, within 2 ulp: a polynomial of degree 9 for the mantissa, and ln 2 in two parts (Cephes,
// Moshier 1989).
INLINE Vec log(Vec x) {
    FloatParts parts = frexp(x);
    Vec f = sub(parts.mantissa, splat(1.0f)), z = mul(f, f);
    Vec p = splat(7.0376836292e-2f);
    p = fma(p, f, splat(-1.1514610310e-1f));
    p = fma(p, f, splat(1.1676998740e-1f));
    p = fma(p, f, splat(-1.2420140846e-1f));
    p = fma(p, f, splat(1.4249322787e-1f));
    p = fma(p, f, splat(-1.6668057665e-1f));
    p = fma(p, f, splat(2.0000714765e-1f));
    p = fma(p, f, splat(-2.4999993993e-1f));
    p = fma(p, f, splat(3.3333331174e-1f));
    Vec low = fma(parts.exponent, splat(-2.12194440e-4f), mul(mul(f, z), p));
    return fma(parts.exponent, splat(0.693359375f), add(f, fma(z, splat(-0.5f), low)));
}

// tanh x, within 2 ulp, NaN for NaN: an odd polynomial of degree 11 below 0.625, 1 - 2 / (e^2|x| + 1) from there on
// (Cephes' tanhf, Moshier 1989).
INLINE Vec tanh(Vec x) {
    Vec magnitude = max(x, sub(zeros(), x)), z = mul(x, x);
    Vec p = splat(-5.70498872745e-3f);
    p = fma(p, z, splat(2.06390887954e-2f));
    p = fma(p, z, splat(-5.37397155531e-2f));
    p = fma(p, z, splat(1.33314422036e-1f));
    p = fma(p, z, splat(-3.33332819422e-1f));
    Vec small = fma(mul(p, z), x, x);
    Vec one = splat(1.0f), large = sub(one, div(splat(2.0f), add(exp(add(magnitude, magnitude)), one)));
    Vec signed_large = where_less(x, zeros(), sub(zeros(), large), large);
    return where_less(splat(0.625f), magnitude, signed_large, small);
}

// x / (1 + e^-x); 0 where e^-x overflows `exp`.
INLINE Vec silu(Vec x) {
    return where_less(x, splat(-88.37626f), zeros(), div(x, add(splat(1.0f), exp(sub(zeros(), x)))));
}

// 1 / (1 + e^-x), within a few ulp; NaN for NaN.
INLINE Vec sigmoid(Vec x) { return div(splat(1.0f), add(splat(1.0f), exp(sub(zeros(), x)))); }

// GELU by its tanh approximation (Hendrycks and Gimpel, 2016): x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3).
INLINE Vec gelu_tanh(Vec x) {
    Vec u2 = mul(x, fma(mul(x, x), splat(7.1354816e-2f), splat(1.5957691f)));
    return where_less(u2, splat(-88.37626f), zeros(), div(x, add(splat(1.0f), exp(sub(zeros(), u2)))));
}
