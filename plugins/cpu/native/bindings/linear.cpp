#include "bindings/linear.hpp"

namespace specserve {

void bind_coded(nb::module_& m) {
    using Numbers = std::optional<Array>;
    nb::class_<CodedPart>(m, "CodedPart")
        .def(
            "__init__",
            [](CodedPart* self, const Array& integers, int group_size, int bits, const std::vector<int>& levels,
               const Array& scale_units, const Numbers& scale_steps, const Numbers& offset_units,
               const Numbers& offset_steps) {
                new (self) CodedPart{integers, group_size, bits, levels, {scale_units, scale_steps}, {}};
                if (offset_units) self->offsets = CodedNumbers{*offset_units, offset_steps};
            },
            nb::arg("integers"), nb::arg("group_size"), nb::arg("bits"), nb::arg("levels"), nb::arg("scale_units"),
            nb::arg("scale_steps").none(), nb::arg("offset_units").none(), nb::arg("offset_steps").none());
}

template <typename S>
void bind_linear(nb::module_& m) {
    nb::class_<PackedLinear<S>>(m, "PackedLinear")
        .def(nb::init<std::shared_ptr<Machine>, const Array&, const std::optional<Array>&>(), nb::arg("machine"),
             nb::arg("weight"), nb::arg("bias").none())
        .def(nb::init<std::shared_ptr<Machine>, const Array&, const Array&, int, const std::string&,
                      const std::optional<Array>&>(),
             nb::arg("machine"), nb::arg("integers"), nb::arg("scales"), nb::arg("group_size"), nb::arg("inputs"),
             nb::arg("bias").none())
        .def(nb::init<std::shared_ptr<Machine>, const nb::iterable&, const std::string&, const std::optional<Array>&>(),
             nb::arg("machine"), nb::arg("parts"), nb::arg("inputs"), nb::arg("bias").none())
        .def_prop_ro("out_features", [](const PackedLinear<S>& map) { return map.linear().out_features; })
        .def("rows", &PackedLinear<S>::rows, nb::arg("outputs"), nb::arg("out"))
        .def("forward", &PackedLinear<S>::forward, nb::arg("x"), nb::arg("out"));
    m.def("quantize", &quantize_weight<S>, nb::arg("machine"), nb::arg("weight"), nb::arg("group_size"),
          nb::arg("integers"), nb::arg("scales"));
}

template void bind_linear<Bf16>(nb::module_&);
template void bind_linear<float>(nb::module_&);

}  // namespace specserve
