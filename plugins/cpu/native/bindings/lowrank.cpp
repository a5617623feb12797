#include "bindings/lowrank.hpp"

#include <nanobind/stl/tuple.h>

namespace specserve {

namespace {

template <typename S>
using PartSegment = std::tuple<int, int, std::shared_ptr<LowRankParts<S>>>;

// To rows [begin, end) of out what each segment's parts add; one job for all segments, a few rows a task.
template <typename S>
void add_segments(const std::shared_ptr<Machine>& machine, const Array& x, const Array& out,
                  const std::vector<PartSegment<S>>& segments) {
    const S* from = numbers<S>(x, "x", {kAny, kAny}, 1);
    int64_t rows = static_cast<int64_t>(x.shape(0));
    S* to = numbers<S>(out, "out", {rows, kAny}, 1);
    std::vector<std::tuple<int, int, const LowRank<S>*>> tasks;
    for (const auto& [begin, end, parts] : segments) {
        check_segment(begin, end, rows);
        if (parts->parts().empty()) continue;
        if (parts->ins != static_cast<int>(x.shape(1)) || parts->outs > static_cast<int>(out.shape(1)))
            throw std::invalid_argument("parts of " + std::to_string(parts->ins) + " inputs and " +
                                        std::to_string(parts->outs) + " outputs do not fit x " + sizes_of(x) +
                                        " and out " + sizes_of(out) + ".");
        for (int r = begin; r < end; r += kLowRankRows)
            tasks.emplace_back(r, std::min(kLowRankRows, end - r), &parts->parts());
    }
    const Table<S>& table = table_of<S>(machine->kernels);
    nb::gil_scoped_release free;
    if (tasks.empty()) return;
    machine->pool->run(1, [&](Pool::Crew& crew) {
        crew.share(static_cast<int>(tasks.size()), [&](int i) {
            auto [begin, count, parts] = tasks[static_cast<size_t>(i)];
            add_low_rank(table, *parts, {from + begin * x.stride(0), x.stride(0), count},
                         Rows<S>{to + begin * out.stride(0), out.stride(0), count});
        });
    });
}

}  // namespace

template <typename S>
void bind_lowrank(nb::module_& m) {
    nb::class_<LowRankParts<S>>(m, "LowRank")
        .def(nb::init<std::vector<typename LowRankParts<S>::Part>>(), nb::arg("parts"));
    nb::class_<AdapterParts<S>>(m, "Adapter")
        .def(nb::init<std::vector<typename AdapterParts<S>::LayerOf>>(), nb::arg("layers"));
    m.def("add_low_rank", &add_segments<S>);
}

template void bind_lowrank<Bf16>(nb::module_&);
template void bind_lowrank<float>(nb::module_&);

}  // namespace specserve
