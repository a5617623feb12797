// Linear maps: a row of a batch has the bits of the row alone, and its sums are near those in float64.
#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/input_quantizer.hpp"
#include "runtime/kernel_job.hpp"
#include "stress/random_linear.hpp"
#include "stress/stress.hpp"

namespace specserve {

namespace {

float to_float(double x) { return static_cast<float>(x); }

// A row of inputs as the map multiplies it: in 8 bits where it quantises them.
template <typename S>
std::vector<double> multiplied(const Linear<S>& w, const S* x) {
    std::vector<double> row(static_cast<size_t>(w.in_features));
    for (size_t i = 0; i < row.size(); ++i) row[i] = to_double(x[i]);
    bool is_coded = w.coded && !w.coded.wide_inputs;
    if (!w.corrections && !is_coded) return row;
    size_t group_size = static_cast<size_t>(is_coded ? kBlockInputs : w.group_size);
    for (size_t begin = 0; begin < row.size(); begin += group_size) {
        size_t end = std::min(row.size(), begin + group_size);
        double most = 0;
        for (size_t i = begin; i < end; ++i) most = std::max(most, std::fabs(row[i]));
        float inverse = 127.0f / to_float(most);
        for (size_t i = begin; i < end; ++i)
            row[i] = most ? static_cast<double>(std::rint(to_float(row[i]) * inverse) * (to_float(most) / 127.0f)) : 0;
    }
    return row;
}

// The map by std::fma, of weights in the model's dtype.
template <typename S>
float fused_sum(const Linear<S>& w, const S* x, const double* weight, float bias) {
    float sum = 0.0f;
    for (int i = 0; i < w.in_features; ++i) sum = std::fma(to_float(to_double(x[i])), to_float(weight[i]), sum);
    return w.bias ? sum + bias : sum;
}

// Keys and values of a few pages, somewhere in memory.
struct RandomPages {
    std::vector<char> keys, values;
    std::vector<ptrdiff_t> begins;
    int lines_of_page;

    explicit RandomPages(Random& random) : lines_of_page(between(random, 1, 5)) {
        int count = between(random, 0, 4), room = 8 * lines_of_page * 64;
        keys.resize(static_cast<size_t>(room));
        values.resize(static_cast<size_t>(room));
        for (int i = 0; i < count; ++i) begins.push_back(ptrdiff_t{between(random, 0, 7)} * lines_of_page * 64);
    }
    PagesAhead ahead() const {
        return {keys.data(), values.data(), begins.data(), static_cast<int>(begins.size()), lines_of_page};
    }
};

// Every line of every page, its keys before its values, however many are taken at once.
void check_lines(const RandomPages& pages, Random& random) {
    PagesAhead ahead = pages.ahead();
    for (ptrdiff_t begin : pages.begins)
        for (const std::vector<char>* of : {&pages.keys, &pages.values})
            for (int line = 0; line < pages.lines_of_page;) {
                require(!ahead.is_done(), "a page's lines are not all prefetched");
                int most = between(random, 1, 7), asked = most;
                require(ahead.take(most) == of->data() + begin + ptrdiff_t{line} * 64 && most >= 1 && most <= asked &&
                            line + most <= pages.lines_of_page,
                        "other lines are prefetched than the next");
                line += most;
            }
    require(ahead.is_done(), "lines are prefetched that no page has");
}

}  // namespace

template <typename S>
void check_linear(const Kernels& kernels, ThreadPool& pool, Random& random) {
    int in_features = between(random, 1, 70) * kVnni<S>, out_features = between(random, 1, 70);
    int rows = between(random, 1, 70);
    int row = between(random, 0, rows - 1);
    ptrdiff_t stride = in_features + between(random, 0, 3) * kVnni<S>;
    std::vector<S> bias = random_numbers<S>(random, static_cast<size_t>(out_features));
    const S* some_bias = between(random, 0, 1) ? bias.data() : nullptr;
    RandomLinear<S> map = random_linear<S>(pool, random, out_features, in_features, some_bias);
    const Linear<S>& w = map.packed.linear();
    std::vector<S> x = random_numbers<S>(random, static_cast<size_t>((rows - 1) * stride + in_features));
    for (int r = 0; r < rows; ++r)
        if (r != row)
            x[static_cast<size_t>(r * stride + between(random, 0, in_features - 1))] =
                to_number<S>(std::numeric_limits<float>::quiet_NaN());
    std::vector<S> out(static_cast<size_t>(rows * out_features)), alone(static_cast<size_t>(out_features));
    int tasks = between(random, 1, w.num_panels());
    RandomPages pages(random);
    check_lines(pages, random);
    std::vector<PagesAhead> ahead(static_cast<size_t>(tasks), pages.ahead());
    const KernelTable<S>& table = kernel_table<S>(kernels);
    InputQuantizer<S> quantizer, of_row;
    for (InputQuantizer<S>* each : {&quantizer, &of_row}) each->add(w);
    quantizer.reserve(rows);
    of_row.reserve(1);
    Rows<const S> all_rows{x.data(), stride, rows}, one_row{x.data() + row * stride, stride, 1};
    quantizer.quantize(table, w, all_rows, 0, rows);
    of_row.quantize(table, w, one_row, 0, 1);
    run_kernels(pool, table, 1, [&](ThreadPool::Team& team) {
        team.parallel_for(tasks, [&](int t) {
            PanelRange range{w.num_panels() * t / tasks, w.num_panels() * (t + 1) / tasks, nullptr,
                             &ahead[static_cast<size_t>(t)]};
            table.linear(w, quantizer.inputs(w, all_rows), range, {out.data(), out_features, rows});
        });
    });
    for (const PagesAhead& each : ahead)
        require(each.line <= 2 * each.count * each.lines_of_page, "lines behind the pages were prefetched");
    {
        KernelJob<S> job(table);
        table.linear(w, of_row.inputs(w, one_row), {0, w.num_panels()}, {alone.data(), out_features, 1});
    }
    std::vector<double> inputs = multiplied(w, one_row.data);
    require(same_bits(alone.data(), out.data() + row * out_features, alone.size()),
            std::string(kernels.name) + ": a row depends on the other rows");
    record(alone.data(), alone.size());
    for (int o = 0; o < out_features; ++o) {
        if (fuses_products<S>(kernels) && !w.scales && !w.coded) {
            S fused = rounded<S>(fused_sum(w, one_row.data, map.weight.data() + ptrdiff_t{o} * in_features,
                                           to_float(to_double(bias[static_cast<size_t>(o)]))));
            require(same_bits(&fused, &alone[static_cast<size_t>(o)], 1),
                    std::string(kernels.name) + ": a sum is not the chain of fused multiply-adds");
        }
        double exact = w.bias ? to_double(bias[static_cast<size_t>(o)]) : 0, size = std::fabs(exact);
        for (int i = 0; i < in_features; ++i) {
            size_t at = static_cast<size_t>(o * in_features + i);
            exact += inputs[static_cast<size_t>(i)] * map.weight[at];
            size += std::fabs(inputs[static_cast<size_t>(i)] * map.sizes[at]);
        }
        double allowed = std::ldexp(2 * in_features + (w.coded ? 8 : 2), -24) * size +
                         std::ldexp(std::fabs(exact) + size * 1e-4, sizeof(S) == 2 ? -8 : -24);
        require(std::fabs(to_double(alone[static_cast<size_t>(o)]) - exact) <= allowed + 1e-37,
                std::string(kernels.name) + ": a sum is wrong");
    }
}

template void check_linear<Bf16>(const Kernels&, ThreadPool&, Random&);
template void check_linear<float>(const Kernels&, ThreadPool&, Random&);

}  // namespace specserve
