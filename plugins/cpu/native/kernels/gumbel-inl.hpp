// The natural logarithm of sixteen lanes, and the Gumbel noise made of it. Included by sample.hpp.

// log x for normal positive x, within 2 units in the last place (Cephes, Moshier 1989): the logarithm of a number
// around 1 by a polynomial of degree 9, and ln 2 in two parts.
INLINE F log(F x) {
    Power power = split_power(x);
    F f = sub(power.number, splat(1.0f)), z = mul(f, f);
    F p = splat(7.0376836292e-2f);
    p = fma(p, f, splat(-1.1514610310e-1f));
    p = fma(p, f, splat(1.1676998740e-1f));
    p = fma(p, f, splat(-1.2420140846e-1f));
    p = fma(p, f, splat(1.4249322787e-1f));
    p = fma(p, f, splat(-1.6668057665e-1f));
    p = fma(p, f, splat(2.0000714765e-1f));
    p = fma(p, f, splat(-2.4999993993e-1f));
    p = fma(p, f, splat(3.3333331174e-1f));
    F low = fma(power.exponent, splat(-2.12194440e-4f), mul(mul(f, z), p));
    return fma(power.exponent, splat(0.693359375f), add(f, fma(z, splat(-0.5f), low)));
}

// (h + 1/2) / 2^32 within (0, 1), as the core rounds it.
INLINE F uniform(F h) { return min(mul(add(h, splat(0.5f)), splat(0x1p-32f)), splat(1.0f - 0x1p-24f)); }

// -log(-log(1 - w)). What 1 - w rounds away of a small w is given back (Kahan's log1p), so that the noise has the
// relative error of the logarithms: within 1e-6 of the core's where it is above -1. Its last bits differ from torch's.
INLINE F gumbel(F w) {
    F one = splat(1.0f), rest = sub(one, w);
    F lost = sub(sub(one, rest), w);
    F exponential = sub(zeros(), add(log(rest), div(lost, rest)));
    return sub(zeros(), log(exponential));
}
