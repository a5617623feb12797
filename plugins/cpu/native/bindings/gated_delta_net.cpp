#include "bindings/gated_delta_net.hpp"

namespace specserve {

void bind_delta_workspace(nb::module_& m) {
    nb::class_<DeltaWorkspace>(m, "DeltaWorkspace").def("__init__", [](DeltaWorkspace* self, const Machine& machine) {
        new (self) DeltaWorkspace(machine.pool);
    });
}

template <typename S>
void bind_gated_delta_net(nb::module_& m) {
    nb::class_<PyGatedDeltaNet<S>>(m, "GatedDeltaNet")
        .def(nb::init<const Machine&, std::shared_ptr<DeltaWorkspace>, const DeltaNumbers&, Array, Array, Array, Array,
                      float>(),
             nb::kw_only(), nb::arg("machine"), nb::arg("workspace"), nb::arg("numbers"), nb::arg("taps"),
             nb::arg("dt_bias"), nb::arg("rate"), nb::arg("norm"), nb::arg("eps"))
        .def("mix", &PyGatedDeltaNet<S>::mix, nb::arg("rows"), nb::arg("states"), nb::arg("trails"), nb::arg("updates"),
             nb::arg("runs"), nb::arg("out"));
}

template void bind_gated_delta_net<Bf16>(nb::module_&);
template void bind_gated_delta_net<float>(nb::module_&);

}  // namespace specserve
