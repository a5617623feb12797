// The sampler: rows are described one by one, then decided in one call without the GIL.
#include "bindings/sampler.hpp"

namespace specserve {

namespace {

std::vector<int> argmax_tokens(Sampler& sampler, const Array& array) {
    Logits logits = to_logits(array);
    nb::gil_scoped_release no_gil;
    return sampler.argmax_tokens(logits);
}

std::vector<int> target_tokens(Sampler& sampler, const Array& array, const TargetRowsBuilder& builder) {
    Logits logits = to_logits(array);
    const TargetRows& targets = builder.checked(logits);
    nb::gil_scoped_release no_gil;
    return sampler.target_tokens(logits, targets);
}

// Per row `count` tokens, and their probabilities.
nb::tuple draft_tokens(Sampler& sampler, const Array& array, const TargetRowsBuilder& builder,
                       const std::optional<Array>& ids, int count) {
    Logits logits = to_logits(array);
    const TargetRows& targets = builder.checked(logits);
    check_draft_count(count, logits.size);
    check_edits(ids.has_value(), targets);
    const int64_t* of_target = ids ? checked_data<int64_t>(*ids, "ids", {logits.size}) : nullptr;
    std::vector<DraftToken> drafts;
    {
        nb::gil_scoped_release no_gil;
        drafts = sampler.draft_tokens(logits, targets, of_target, count);
    }
    return to_tuple(drafts);
}

// Per row: (logprob, top ids, top logprobs)
nb::list token_logprobs(Sampler& sampler, const Array& array, const std::vector<int64_t>& tokens,
                        const std::vector<int64_t>& counts) {
    Logits logits = to_logits(array);
    if (tokens.size() != array.shape(0) || counts.size() != array.shape(0))
        throw std::invalid_argument("tokens and counts must have one element per row of logits; got " +
                                    std::to_string(tokens.size()) + " and " + std::to_string(counts.size()) + " for " +
                                    shape_string(array) + ".");
    for (int64_t token : tokens) check_index(token, logits.size, "token");
    std::vector<RowLogprobs> rows;
    {
        nb::gil_scoped_release no_gil;
        rows = sampler.token_logprobs(logits, tokens.data(), counts.data());
    }
    nb::list result;
    for (const RowLogprobs& row : rows)
        result.append(
            nb::make_tuple(row.logprob, nb::tuple(nb::cast(row.top_ids)), nb::tuple(nb::cast(row.top_logprobs))));
    return result;
}

}  // namespace

void bind_sampler(nb::module_& m) {
    nb::class_<TargetRowsBuilder>(m, "TargetRows")
        .def(nb::init<>())
        .def("add_row", &TargetRowsBuilder::add_row)
        .def("replace_logits", &TargetRowsBuilder::replace_logits)
        .def("penalize", &TargetRowsBuilder::penalize)
        .def("shift", &TargetRowsBuilder::shift)
        .def("keep_only", &TargetRowsBuilder::keep_only)
        .def("forbid", &TargetRowsBuilder::forbid)
        .def("keep_bits", &TargetRowsBuilder::keep_bits);
    nb::class_<Sampler>(m, "Sampler")
        .def(
            "__init__",
            [](Sampler* self, const Machine& machine) { new (self) Sampler(machine.kernels.sampling, machine.pool); },
            nb::arg("machine"))
        .def("argmax_tokens", &argmax_tokens, nb::arg("logits"))
        .def("target_tokens", &target_tokens, nb::arg("logits"), nb::arg("targets"))
        .def("draft_tokens", &draft_tokens, nb::arg("logits"), nb::arg("targets"), nb::arg("ids").none(),
             nb::arg("count"))
        .def("token_logprobs", &token_logprobs, nb::arg("logits"), nb::arg("tokens"), nb::arg("counts"))
        .def(
            "gumbel_noise",
            [](const Sampler& sampler, uint64_t seed, int64_t index, const Array& out) {
                float* data = checked_data<float>(out, "out", {kAny});
                sampler.gumbel_noise(seed, index, static_cast<int>(out.shape(0)), data);
            },
            nb::arg("seed"), nb::arg("index"), nb::arg("out"));
}

}  // namespace specserve
