// Linear maps: a row among others has the bits of the row alone, and its sums are those of double precision.
#include <cmath>
#include <limits>

#include "runtime/packed_weights.hpp"
#include "stress/stress.hpp"

namespace specserve {

template <typename S>
void check_linear(const Kernels& kernels, Pool& pool, Random& random) {
    int ins = between(random, 1, 70) * kStep<S>, outs = between(random, 1, 70), rows = between(random, 1, 70);
    int row = between(random, 0, rows - 1);
    ptrdiff_t stride = ins + between(random, 0, 3) * kStep<S>;
    std::vector<S> weight = numbers<S>(random, static_cast<size_t>(outs * ins)),
                   bias = numbers<S>(random, static_cast<size_t>(outs));
    Packed<S> packed(weight.data(), between(random, 0, 1) ? bias.data() : nullptr, outs, ins);
    const Linear<S>& w = packed.linear();
    std::vector<S> x = numbers<S>(random, static_cast<size_t>((rows - 1) * stride + ins));
    for (int r = 0; r < rows; ++r)
        if (r != row)
            x[static_cast<size_t>(r * stride + between(random, 0, ins - 1))] =
                number<S>(std::numeric_limits<float>::quiet_NaN());
    std::vector<S> out(static_cast<size_t>(rows * outs)), alone(static_cast<size_t>(outs));
    int tasks = between(random, 1, w.num_panels());
    pool.run(1, [&](Pool::Crew& crew) {
        crew.share(tasks, [&](int t) {
            Panels panels{w.num_panels() * t / tasks, w.num_panels() * (t + 1) / tasks};
            table_of<S>(kernels).store(w, {x.data(), stride, rows}, panels, {out.data(), outs, rows});
        });
    });
    table_of<S>(kernels).store(w, {x.data() + row * stride, stride, 1}, {0, w.num_panels()}, {alone.data(), outs, 1});
    require(same(alone.data(), out.data() + row * outs, alone.size()),
            std::string(kernels.name) + ": a row differs among others");
    for (int o = 0; o < outs; ++o) {
        double exact = w.bias ? value(bias[static_cast<size_t>(o)]) : 0, size = std::fabs(exact);
        for (int i = 0; i < ins; ++i) {
            double part =
                value(x[static_cast<size_t>(row * stride + i)]) * value(weight[static_cast<size_t>(o * ins + i)]);
            exact += part;
            size += std::fabs(part);
        }
        double allowed =
            std::ldexp(ins + 2, -24) * size + std::ldexp(std::fabs(exact) + size * 1e-4, sizeof(S) == 2 ? -8 : -24);
        require(std::fabs(value(alone[static_cast<size_t>(o)]) - exact) <= allowed + 1e-37,
                std::string(kernels.name) + ": a sum is wrong");
    }
}

template void check_linear<Bf16>(const Kernels&, Pool&, Random&);
template void check_linear<float>(const Kernels&, Pool&, Random&);

}  // namespace specserve
