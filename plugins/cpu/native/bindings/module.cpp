// The Python module: tensors go in and out by DLPack, and the GIL is released while kernels run.
#include "bindings/bind.hpp"

namespace specserve {

namespace {

template <typename S>
void bind(nb::module_ m) {
    bind_linear<S>(m);
    bind_lowrank<S>(m);
    bind_rowwise<S>(m);
    bind_attention<S>(m);
    bind_decoder_stack<S>(m);
    bind_draft_head<S>(m);
    bind_block_head<S>(m);
    bind_gated_delta_net<S>(m);
}

}  // namespace

}  // namespace specserve

using namespace specserve;

NB_MODULE(_native, m) {
    nb::set_leak_warnings(false);
    m.def("instruction_sets", &instruction_sets);
    nb::class_<Machine>(m, "Machine")
        .def(nb::init<const std::string&, int>(), nb::arg("instruction_set"), nb::arg("threads"))
        .def_prop_ro("instruction_set", [](const Machine& machine) { return machine.kernels.name; })
        .def_prop_ro("threads", [](const Machine& machine) { return machine.pool->size(); });
    bind_sampler(m);
    bind_plan(m);
    bind_coded(m);
    bind_delta_workspace(m);
    bind<Bf16>(m.def_submodule("bfloat16"));
    bind<float>(m.def_submodule("float32"));
}
