#include "bindings/linear.hpp"

namespace specserve {

template <typename S>
void bind_linear(nb::module_& m) {
    nb::class_<PackedLinear<S>>(m, "PackedLinear")
        .def(nb::init<std::shared_ptr<Machine>, const Array&, const std::optional<Array>&>(), nb::arg("machine"),
             nb::arg("weight"), nb::arg("bias").none())
        .def(nb::init<std::shared_ptr<Machine>, const Array&, const Array&, int, const std::string&,
                      const std::optional<Array>&>(),
             nb::arg("machine"), nb::arg("integers"), nb::arg("scales"), nb::arg("group_size"), nb::arg("inputs"),
             nb::arg("bias").none())
        .def("forward", &PackedLinear<S>::forward, nb::arg("x"), nb::arg("out"));
    m.def("quantize", &quantize_weight<S>, nb::arg("machine"), nb::arg("weight"), nb::arg("group_size"),
          nb::arg("integers"), nb::arg("scales"));
}

template void bind_linear<Bf16>(nb::module_&);
template void bind_linear<float>(nb::module_&);

}  // namespace specserve
