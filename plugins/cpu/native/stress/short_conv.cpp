// Short convolutions over the rows of two batches, the second behind a path of the first one's tree: each row by its
// own path, with products and sums that are rounded each, as the kernels state it.
#include <algorithm>

#include "runtime/kernel_job.hpp"
#include "stress/stress.hpp"

namespace specserve {

namespace {

constexpr int kSlotsBeside = 3;  // of no row: they stay as they are

// Rounded to S, to the nearest and then to even.
template <typename S>
S nearest(float x) {
    if constexpr (sizeof(S) == 4) return x;
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    bits += 0x7fff + ((bits >> 16) & 1);
    std::memcpy(&x, &bits, 4);
    return to_number<S>(x);
}

template <typename S>
float widened(S x) {
    return static_cast<float>(to_double(x));
}

// A compiler may not fuse a product with a sum that reads it from here.
float apart(float x) {
    volatile float stored = x;
    return stored;
}

}  // namespace

template <typename S>
void check_short_conv(const Kernels& kernels, ThreadPool& pool, Random& random) {
    int size = between(random, 1, 70), reach = between(random, 0, 7), rows = between(random, 1, 40);
    size_t width = static_cast<size_t>(size), num_rows = static_cast<size_t>(rows);
    std::vector<float> weight = random_numbers<float>(random, static_cast<size_t>(reach + 1) * width);
    std::vector<float> bias = random_numbers<float>(random, width);
    bool biased = between(random, 0, 1) == 1;
    std::vector<S> in = random_numbers<S>(random, num_rows * 3 * width), out(num_rows * width);
    std::vector<S> kept = random_numbers<S>(random, (num_rows + kSlotsBeside) * width);
    ShortConv<S> conv{weight.data(), biased ? bias.data() : nullptr, reach, size, kept.data()};

    std::vector<int64_t> slots(num_rows), before(num_rows * static_cast<size_t>(reach));
    std::vector<int> parents(num_rows);
    for (size_t r = 0; r < num_rows; ++r) slots[r] = static_cast<int64_t>(r) + kSlotsBeside;
    std::shuffle(slots.begin(), slots.end(), random);
    for (size_t r = 0; r < num_rows; ++r) {
        parents[r] = between(random, std::max(-1, static_cast<int>(r) - 4), static_cast<int>(r) - 1);
        int parent = parents[r];
        for (size_t d = 0; d < static_cast<size_t>(reach); ++d) {
            before[r * static_cast<size_t>(reach) + d] = parent < 0 ? -1 : slots[static_cast<size_t>(parent)];
            parent = parent < 0 ? -1 : parents[static_cast<size_t>(parent)];
        }
    }
    std::vector<S> beside(kept.begin(), kept.begin() + ptrdiff_t{kSlotsBeside} * size);
    const KernelTable<S>& table = kernel_table<S>(kernels);
    int tasks = between(random, 1, size), half = between(random, 0, rows);
    for (auto [begin, end] : {std::pair{0, half}, std::pair{half, rows}}) {
        Rows<const S> of_batch{in.data() + ptrdiff_t{3} * begin * size, ptrdiff_t{3} * size, end - begin};
        PrecedingSlots preceding{slots.data() + begin, before.data() + ptrdiff_t{begin} * reach, reach};
        Rows<S> to{out.data() + ptrdiff_t{begin} * size, size, end - begin};
        run_kernels(pool, table, 1, [&](ThreadPool::Team& team) {
            team.parallel_for(tasks, [&](int t) {
                ChannelRange channels{size * t / tasks, size * (t + 1) / tasks};
                table.short_conv(conv, of_batch, preceding, channels, to);
            });
        });
    }

    std::string name(kernels.name);
    require(same_bits(beside.data(), kept.data(), beside.size()), name + ": a convolution writes to slots of no row");
    auto gated = [&](size_t r, size_t i) {
        const S* row = in.data() + 3 * r * width;
        return nearest<S>(widened(row[i]) * widened(row[2 * width + i]));
    };
    for (size_t r = 0; r < num_rows; ++r)
        for (size_t i = 0; i < width; ++i) {
            float total = apart(widened(gated(r, i)) * weight[static_cast<size_t>(reach) * width + i]);
            int parent = parents[r];
            for (size_t d = 0; d < static_cast<size_t>(reach); ++d) {
                float product = 0;
                if (parent >= 0) {
                    float tap = weight[(static_cast<size_t>(reach) - 1 - d) * width + i];
                    product = apart(widened(gated(static_cast<size_t>(parent), i)) * tap);
                    parent = parents[static_cast<size_t>(parent)];
                }
                total = apart(total + product);
            }
            if (biased) total = apart(total + bias[i]);
            S y = nearest<S>(widened(in[3 * r * width + width + i]) * widened(nearest<S>(total)));
            S own = gated(r, i);
            size_t slot = static_cast<size_t>(slots[r]) * width + i;
            require(same_bits(&own, &kept[slot], 1), name + ": a convolution keeps another product of a row");
            require(same_bits(&y, &out[r * width + i], 1), name + ": a convolution of a row's path is wrong");
        }
}

template void check_short_conv<Bf16>(const Kernels&, ThreadPool&, Random&);
template void check_short_conv<float>(const Kernels&, ThreadPool&, Random&);

}  // namespace specserve
