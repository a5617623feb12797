#include "bindings/lowrank.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

namespace specserve {

namespace {

template <typename S>
using LowRankSegment = std::tuple<int, int, std::shared_ptr<LowRankParts<S>>>;

// Adds each segment's parts to rows [begin, end) of out: one job for all segments, a few rows per task.
template <typename S>
void add_segments(const std::shared_ptr<Machine>& machine, const Array& x, const Array& out,
                  const std::vector<LowRankSegment<S>>& segments) {
    const S* inputs = checked_data<S>(x, "x", {kAny, kAny}, 1);
    int64_t rows = static_cast<int64_t>(x.shape(0));
    S* outputs = checked_data<S>(out, "out", {rows, kAny}, 1);
    std::vector<std::tuple<int, int, const LowRank<S>*>> tasks;
    for (const auto& [begin, end, parts] : segments) {
        check_segment(begin, end, rows);
        if (parts->parts().empty()) continue;
        if (parts->in_features != static_cast<int>(x.shape(1)) || parts->out_features > static_cast<int>(out.shape(1)))
            throw std::invalid_argument("parts of " + std::to_string(parts->in_features) + " inputs and " +
                                        std::to_string(parts->out_features) + " outputs do not fit x " +
                                        shape_string(x) + " and out " + shape_string(out) + ".");
        for (int r = begin; r < end; r += kLowRankRows)
            tasks.emplace_back(r, std::min(kLowRankRows, end - r), &parts->parts());
    }
    const KernelTable<S>& table = kernel_table<S>(machine->kernels);
    nb::gil_scoped_release no_gil;
    if (tasks.empty()) return;
    run_kernels(*machine->pool, table, 1, [&](ThreadPool::Team& team) {
        team.parallel_for(static_cast<int>(tasks.size()), [&](int i) {
            auto [begin, count, parts] = tasks[static_cast<size_t>(i)];
            add_low_rank(table, *parts, {inputs + begin * x.stride(0), x.stride(0), count},
                         Rows<S>{outputs + begin * out.stride(0), out.stride(0), count});
        });
    });
}

}  // namespace

template <typename S>
void bind_lowrank(nb::module_& m) {
    nb::class_<LowRankParts<S>>(m, "LowRankParts")
        .def(nb::init<std::vector<typename LowRankParts<S>::Part>>(), nb::arg("parts"));
    nb::class_<PackedAdapter<S>>(m, "PackedAdapter")
        .def(nb::init<std::vector<typename PackedAdapter<S>::LayerParts>>(), nb::arg("layers"));
    m.def("add_low_rank", &add_segments<S>);
}

template void bind_lowrank<Bf16>(nb::module_&);
template void bind_lowrank<float>(nb::module_&);

}  // namespace specserve
