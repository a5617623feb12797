#include "bindings/attention.hpp"

namespace specserve {

void bind_plan(nb::module_& m) {
    nb::class_<AttentionPlan>(m, "AttentionPlan")
        .def(
            "__init__",
            [](AttentionPlan* self, int block_size, int rows_per_tile) {
                if (block_size < 1 || rows_per_tile < 1)
                    throw std::invalid_argument("block_size and rows_per_tile must be at least 1.");
                new (self) AttentionPlan(block_size, rows_per_tile);
            },
            nb::arg("block_size"), nb::arg("rows_per_tile"))
        .def(
            "add",
            [](AttentionPlan& plan, int start, int length, int num_committed, const std::vector<int32_t>& block_ids,
               const std::vector<int32_t>& parents, int first_node) {
                if (!plan.add(start, length, num_committed, block_ids, parents, first_node))
                    throw std::invalid_argument("a request of " + std::to_string(length) + " rows from token " +
                                                std::to_string(start) + " does not fit its " +
                                                std::to_string(block_ids.size()) + " blocks or its draft's parents.");
            },
            nb::arg("start"), nb::arg("length"), nb::arg("num_committed"), nb::arg("block_ids"), nb::arg("parents"),
            nb::arg("first_node") = 0)
        .def(
            "add_together",
            [](AttentionPlan& plan, int start, int length, const std::vector<int32_t>& block_ids, bool one_by_one) {
                if (!plan.add_together(start, length, block_ids, one_by_one))
                    throw std::invalid_argument(std::to_string(length) + " rows from token " + std::to_string(start) +
                                                " do not fit their " + std::to_string(block_ids.size()) + " blocks.");
            },
            nb::arg("start"), nb::arg("length"), nb::arg("block_ids"), nb::arg("one_by_one") = false)
        .def(
            "pad",
            [](AttentionPlan& plan, int rows) {
                if (rows < 0 || rows > INT32_MAX - plan.num_rows())
                    throw std::invalid_argument("rows must be at least 0; got " + std::to_string(rows) + ".");
                plan.pad(rows);
            },
            nb::arg("rows"))
        .def_prop_ro("num_rows", &AttentionPlan::num_rows);
}

template <typename S>
void bind_attention(nb::module_& m) {
    nb::class_<PagedAttention<S>>(m, "PagedAttention")
        .def(nb::init<std::shared_ptr<Machine>, Array, const std::string&, int, float, float, std::vector<LayerRules>,
                      int>(),
             nb::arg("machine"), nb::arg("cache"), nb::arg("layout"), nb::arg("num_heads"), nb::arg("scale"),
             nb::arg("key_limit"), nb::arg("rules"), nb::arg("min_key") = 0)
        .def("forward", &PagedAttention<S>::forward)
        .def("move_slots", &PagedAttention<S>::move_slots, nb::arg("source"), nb::arg("target"))
        .def_prop_ro("rows_per_tile", &PagedAttention<S>::tile_rows);
}

template void bind_attention<Bf16>(nb::module_&);
template void bind_attention<float>(nb::module_&);

}  // namespace specserve
