// The decoder's layers in one call.
#include "bindings/decoder_stack.hpp"

#include <nanobind/stl/pair.h>

namespace specserve {

template <typename S>
void bind_decoder_stack(nb::module_& m) {
    nb::class_<PyShortConv<S>>(m, "ShortConv")
        .def(nb::init<std::shared_ptr<Machine>, Array, std::optional<Array>>(), nb::arg("machine"), nb::arg("weight"),
             nb::arg("bias").none())
        .def("mix", &PyShortConv<S>::mix);
    nb::class_<LayerWeights<S>>(m, "LayerWeights")
        .def(
            "__init__",
            [](LayerWeights<S>* self, std::optional<Array> input_norm, std::optional<Array> aux_norm,
               std::shared_ptr<PackedLinear<S>> qkv, std::optional<Array> q_norm, std::optional<Array> k_norm,
               std::optional<std::shared_ptr<PackedLinear<S>>> gate, bool gates_in_qkv,
               std::shared_ptr<PackedLinear<S>> o, std::optional<Array> attention_output_norm,
               std::optional<Array> mlp_norm, std::optional<std::shared_ptr<PackedLinear<S>>> gate_up,
               std::optional<std::shared_ptr<PackedLinear<S>>> down,
               std::optional<std::shared_ptr<PackedLinear<S>>> router,
               std::vector<std::pair<std::shared_ptr<PackedLinear<S>>, std::shared_ptr<PackedLinear<S>>>> experts,
               std::optional<Array> choice_bias, std::optional<Array> mlp_output_norm, std::optional<Array> cos,
               std::optional<Array> sin, std::optional<std::shared_ptr<PyShortConv<S>>> conv, std::optional<Array> kept,
               std::optional<std::shared_ptr<PyGatedDeltaNet<S>>> delta, std::optional<Array> states,
               std::optional<Array> trails, std::optional<Array> updates) {
                new (self) LayerWeights<S>{std::move(input_norm),
                                           std::move(aux_norm),
                                           std::move(q_norm),
                                           std::move(k_norm),
                                           std::move(attention_output_norm),
                                           std::move(mlp_norm),
                                           std::move(mlp_output_norm),
                                           std::move(qkv),
                                           std::move(o),
                                           std::move(gate),
                                           gates_in_qkv,
                                           std::move(gate_up),
                                           std::move(down),
                                           std::move(router),
                                           std::move(experts),
                                           std::move(choice_bias),
                                           std::move(cos),
                                           std::move(sin),
                                           std::move(conv),
                                           std::move(kept),
                                           std::move(delta),
                                           std::move(states),
                                           std::move(trails),
                                           std::move(updates)};
            },
            nb::kw_only(), nb::arg("input_norm").none(), nb::arg("aux_norm").none(), nb::arg("qkv"),
            nb::arg("q_norm").none(), nb::arg("k_norm").none(), nb::arg("gate").none(), nb::arg("gates_in_qkv"),
            nb::arg("o"), nb::arg("attention_output_norm").none(), nb::arg("mlp_norm").none(),
            nb::arg("gate_up").none(), nb::arg("down").none(), nb::arg("router").none(), nb::arg("experts"),
            nb::arg("choice_bias").none(), nb::arg("mlp_output_norm").none(), nb::arg("cos").none(),
            nb::arg("sin").none(), nb::arg("conv").none(), nb::arg("kept").none(), nb::arg("delta").none(),
            nb::arg("states").none(), nb::arg("trails").none(), nb::arg("updates").none());
    nb::class_<PyDecoderStack<S>>(m, "DecoderStack")
        .def(nb::init<std::shared_ptr<Machine>, std::optional<std::shared_ptr<PagedAttention<S>>>,
                      typename PyDecoderStack<S>::HeadSizes, std::vector<LayerWeights<S>>, std::optional<Array>,
                      std::shared_ptr<PackedLinear<S>>, int64_t, float, float, const ActivationNumbers&, float,
                      std::optional<RoutingNumbers>>(),
             nb::kw_only(), nb::arg("machine"), nb::arg("attention").none(), nb::arg("heads"), nb::arg("layers"),
             nb::arg("final_norm").none(), nb::arg("lm_head"), nb::arg("positions"), nb::arg("eps"), nb::arg("scale"),
             nb::arg("activation"), nb::arg("residual"), nb::arg("routing").none())
        .def("forward", &PyDecoderStack<S>::forward)
        .def("pre_attention", &PyDecoderStack<S>::pre_attention, nb::arg("layer"), nb::arg("x"), nb::arg("positions"),
             nb::arg("adapters"), nb::arg("aux").none(), nb::arg("qkv"), nb::arg("gates").none())
        .def("post_attention", &PyDecoderStack<S>::post_attention, nb::arg("layer"), nb::arg("x"),
             nb::arg("attention_out"), nb::arg("gates").none(), nb::arg("adapters"))
        .def("logits", &PyDecoderStack<S>::logits, nb::arg("x"), nb::arg("rows").none(), nb::arg("out"));
}

template void bind_decoder_stack<Bf16>(nb::module_&);
template void bind_decoder_stack<float>(nb::module_&);

}  // namespace specserve
