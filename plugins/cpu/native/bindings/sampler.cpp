// The Python face of the sampler: rows are described one by one, then decided in one call without the GIL.
#include "bindings/bind.hpp"
#include "ops/sampler.hpp"

namespace specserve {

namespace {

Logits logits_of(const Array& a) {
    const float* at = numbers<float>(a, "logits", {kAny, kAny}, 1);
    if (a.shape(1) < 1 || a.shape(1) > INT32_MAX / 2)
        throw std::invalid_argument("logits must have columns; got " + sizes_of(a) + ".");
    return {at, a.stride(0), static_cast<int>(a.shape(0)), static_cast<int>(a.shape(1))};
}

void within(int64_t number, int64_t size, const char* name) {
    if (number < 0 || number >= size)
        throw std::invalid_argument(std::string(name) + " must be in [0, " + std::to_string(size) + "); got " +
                                    std::to_string(number) + ".");
}

// The rows whose target tokens are wanted: `begin` one, then say what changes its logits.
class Targets {
   public:
    void begin(int64_t row, uint64_t seed, int64_t index, double temperature, int64_t top_k, double top_p,
               double min_p) {
        if (index < 0) throw std::invalid_argument("index must be at least 0; got " + std::to_string(index) + ".");
        wanted_.rows.push_back(
            {row, seed, index, static_cast<float>(temperature), top_k, top_p, min_p, nullptr, wanted_.edits.size(), 0});
    }
    // Logits that stand in for the row's: what came of processors that make no edits.
    void use(nb::handle logits) {
        std::vector<float> copy;
        append(logits, "logits", kAny, copy);
        TargetRow& row = last();
        given_.push_back(std::move(copy));
        row.given = given_.back().data();
    }
    void penalize(nb::handle ids, nb::handle counts, double repetition, double presence, double frequency) {
        take(Edit::penalize, ids, counts, static_cast<float>(repetition), static_cast<float>(presence),
             static_cast<float>(frequency));
    }
    void shift(nb::handle ids, nb::handle values) { take(Edit::shift, ids, values); }
    void keep_only(nb::handle ids) { take(Edit::keep_only, ids); }
    void forbid(nb::handle ids) { take(Edit::forbid, ids); }

    const TargetRows& checked(const Logits& logits) const {
        for (const TargetRow& row : wanted_.rows) within(row.row, logits.count, "row");
        for (int64_t id : wanted_.ids) within(id, logits.size, "token");
        for (const std::vector<float>& row : given_)
            if (static_cast<int64_t>(row.size()) != logits.size)
                throw std::invalid_argument("a processor's logits must be [" + std::to_string(logits.size) +
                                            "]; got [" + std::to_string(row.size()) + "].");
        return wanted_;
    }

   private:
    TargetRow& last() {
        if (wanted_.rows.empty()) throw std::invalid_argument("no row was begun that this could belong to.");
        return wanted_.rows.back();
    }
    // An edit counts only once its lists are taken: who catches the exception may go on with the others.
    void take(Edit::Kind kind, nb::handle ids, nb::handle values = {}, float repetition = 1.0f, float presence = 0.0f,
              float frequency = 0.0f) {
        TargetRow& row = last();
        size_t first_id = wanted_.ids.size(), first_value = wanted_.values.size();
        int64_t count = append(ids, "ids", kAny, wanted_.ids);
        if (values.is_valid()) append(values, "values", count, wanted_.values);
        wanted_.edits.push_back(
            {kind, first_id, first_value, static_cast<int>(count), repetition, presence, frequency});
        ++row.num_edits;
    }

    TargetRows wanted_;
    std::vector<std::vector<float>> given_;
};

std::vector<int> argmax_tokens(Sampler& sampler, const Array& logits) {
    Logits from = logits_of(logits);
    nb::gil_scoped_release free;
    return sampler.argmax(from);
}

std::vector<int> target_tokens(Sampler& sampler, const Array& logits, const Targets& targets) {
    Logits from = logits_of(logits);
    const TargetRows& wanted = targets.checked(from);
    nb::gil_scoped_release free;
    return sampler.targets(from, wanted);
}

// Per row: (logprob, ids of the best, their logprobs)
nb::list token_logprobs(Sampler& sampler, const Array& logits, const std::vector<int64_t>& tokens,
                        const std::vector<int64_t>& counts) {
    Logits from = logits_of(logits);
    if (tokens.size() != logits.shape(0) || counts.size() != logits.shape(0))
        throw std::invalid_argument("tokens and counts must be as many as rows of logits; got " +
                                    std::to_string(tokens.size()) + " and " + std::to_string(counts.size()) + " for " +
                                    sizes_of(logits) + ".");
    for (int64_t token : tokens) within(token, from.size, "token");
    std::vector<RowLogprobs> rows;
    {
        nb::gil_scoped_release free;
        rows = sampler.logprobs(from, tokens.data(), counts.data());
    }
    nb::list found;
    for (const RowLogprobs& row : rows)
        found.append(
            nb::make_tuple(row.logprob, nb::tuple(nb::cast(row.top_ids)), nb::tuple(nb::cast(row.top_logprobs))));
    return found;
}

}  // namespace

void bind_sampler(nb::module_& m) {
    nb::class_<Targets>(m, "Targets")
        .def(nb::init<>())
        .def("begin", &Targets::begin)
        .def("use", &Targets::use)
        .def("penalize", &Targets::penalize)
        .def("shift", &Targets::shift)
        .def("keep_only", &Targets::keep_only)
        .def("forbid", &Targets::forbid);
    nb::class_<Sampler>(m, "Sampler")
        .def(
            "__init__",
            [](Sampler* self, const Machine& machine) { new (self) Sampler(machine.kernels.sampling, machine.pool); },
            nb::arg("machine"))
        .def("argmax_tokens", &argmax_tokens, nb::arg("logits"))
        .def("target_tokens", &target_tokens, nb::arg("logits"), nb::arg("targets"))
        .def("token_logprobs", &token_logprobs, nb::arg("logits"), nb::arg("tokens"), nb::arg("counts"))
        .def(
            "noise",
            [](const Sampler& sampler, uint64_t seed, int64_t index, const Array& out) {
                float* to = numbers<float>(out, "out", {kAny});
                sampler.noise(seed, index, static_cast<int>(out.shape(0)), to);
            },
            nb::arg("seed"), nb::arg("index"), nb::arg("out"));
}

}  // namespace specserve
