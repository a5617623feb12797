// The Python module: buffers of integers in, tuples out, the GIL released in between.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/tuning.hpp"
#include "index/index.hpp"

namespace nb = nanobind;
using namespace ngram;

namespace {

template <typename T>
using Buffer = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

MatchType match_type_named(const std::string& name) {
    if (name == "learned") return MatchType::kLearned;
    if (name == "prob") return MatchType::kProb;
    if (name == "bfs") return MatchType::kBfs;
    throw std::invalid_argument("match_type must be learned, prob or bfs; got '" + name + "'");
}

void check_token_ids(const Buffer<int32_t>& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
        if (tokens.data()[i] < 0)
            throw std::invalid_argument("token ids are not negative; got " + std::to_string(tokens.data()[i]));
    }
}

void check_minimum(const char* name, uint64_t value, uint64_t min) {
    if (value >= min) return;
    throw std::invalid_argument(std::string(name) + " must be at least " + std::to_string(min) + "; got " +
                                std::to_string(value));
}

void check_range(const char* name, uint64_t value, uint64_t min, uint64_t max) {
    if (value >= min && value <= max) return;
    throw std::invalid_argument(std::string(name) + " must be " + std::to_string(min) + ".." + std::to_string(max) +
                                "; got " + std::to_string(value));
}

void init_index(Index* self, const std::string& match_type_name, uint64_t capacity, uint32_t generations, bool shared,
                uint32_t min_match, uint32_t max_match, uint32_t min_breadth, uint32_t max_breadth, uint32_t max_depth,
                double min_survival, uint32_t threads) {
    MatchType match_type = match_type_named(match_type_name);
    check_range("generations", generations, 2, kMaxSources - 1);
    check_minimum("max_depth", max_depth, 1);
    check_minimum("capacity", capacity, std::max(uint64_t{max_depth} + 1, uint64_t{generations}));
    check_minimum("max_match", max_match, 1);
    check_range("min_match", min_match, 1, max_match);
    check_range("max_breadth", max_breadth, 1, kMaxCandidates);
    check_range("min_breadth", min_breadth, 1, max_breadth);
    if (!(min_survival >= 0 && min_survival <= 1)) {
        throw std::invalid_argument("min_survival must be 0..1; got " + std::to_string(min_survival));
    }
    check_range("threads", threads, 1, 2);
    uint32_t per_context = match_type == MatchType::kLearned ? std::min(kLearnedPerContext, max_breadth) : max_breadth;
    CandidateLimits candidates{min_match, max_match, per_context, max_breadth};
    DraftOptions draft{match_type, candidates, min_breadth, max_depth, min_survival};
    new (self) Index(Settings{shared, draft}, capacity, generations, threads);
}

// (tokens, parents, survival), with parents None for a chain; None for an empty draft.
nb::object draft_object(const std::vector<DraftNode>& nodes) {
    if (nodes.empty()) return nb::none();
    bool chain = true;
    for (size_t i = 0; i < nodes.size(); ++i) chain = chain && nodes[i].parent == static_cast<int32_t>(i) - 1;
    auto tuple = [&](auto make) {
        PyObject* made = PyTuple_New(static_cast<Py_ssize_t>(nodes.size()));
        if (made == nullptr) throw nb::python_error();
        for (size_t i = 0; i < nodes.size(); ++i) PyTuple_SetItem(made, static_cast<Py_ssize_t>(i), make(nodes[i]));
        return nb::steal<nb::object>(made);
    };
    nb::object tokens = tuple([](const DraftNode& node) { return PyLong_FromLong(node.token); });
    nb::object parents = chain ? nb::none() : tuple([](const DraftNode& node) { return PyLong_FromLong(node.parent); });
    nb::object survival = tuple([](const DraftNode& node) { return PyFloat_FromDouble(node.survival); });
    return nb::make_tuple(tokens, parents, survival);
}

// Tokens of each request, one request after the other: as many counts as requests, which add up to the tokens.
void check_counts(const char* name, const Buffer<int32_t>& tokens, const Buffer<int32_t>& counts, size_t num_requests) {
    std::string text = name;
    if (counts.size() != num_requests) throw std::invalid_argument("handles and " + text + " must have one length");
    size_t total = 0;
    for (size_t i = 0; i < num_requests; ++i) {
        if (counts.data()[i] < 0) throw std::invalid_argument(text + " are not negative");
        total += static_cast<size_t>(counts.data()[i]);
    }
    if (total != tokens.size()) throw std::invalid_argument(text + " must add up to the number of tokens");
    check_token_ids(tokens);
}

nb::list step(Index& index, const Buffer<int64_t>& handles, const Buffer<int32_t>& tokens,
              const Buffer<int32_t>& counts, const Buffer<int32_t>& limits,
              const std::optional<Buffer<int32_t>>& certain, const std::optional<Buffer<int32_t>>& certain_counts) {
    size_t num_requests = handles.size();
    check_counts("counts", tokens, counts, num_requests);
    if (limits.size() != num_requests) throw std::invalid_argument("handles and limits must have one length");
    for (size_t i = 0; i < num_requests; ++i) {
        if (limits.data()[i] < 0) throw std::invalid_argument("limits are not negative");
    }
    if (certain.has_value() != certain_counts.has_value()) {
        throw std::invalid_argument("certain and certain_counts come together");
    }
    CertainTokens ahead;
    if (certain.has_value()) {
        check_counts("certain_counts", *certain, *certain_counts, num_requests);
        ahead = {certain->data(), certain_counts->data()};
    }
    std::vector<std::vector<DraftNode>> drafts;
    {
        nb::gil_scoped_release release;
        index.step(handles.data(), counts.data(), limits.data(), num_requests, tokens.data(), drafts, ahead);
    }
    nb::list result;
    for (const auto& draft : drafts) result.append(draft_object(draft));
    return result;
}

nb::dict stats(const Index& index) {
    Stats s;
    {
        nb::gil_scoped_release release;
        s = index.stats();
    }
    nb::dict result;
    result["tokens"] = s.tokens;
    result["bytes"] = s.bytes;
    result["generations"] = s.generations;
    result["evicted_generations"] = s.evicted_generations;
    result["requests"] = s.requests;
    result["corpora"] = s.corpora;
    result["corpus_tokens"] = s.corpus_tokens;
    return result;
}

}  // namespace

NB_MODULE(_native, m) {
    m.doc() = "The n-gram index in C++; see _native.pyi.";
    nb::set_leak_warnings(false);  // a server that is interrupted ends with its index alive
    bind_tuning(m);

    nb::class_<Corpus>(m, "Corpus")
        .def(
            "__init__",
            [](Corpus* self, const std::string& match_type) {
                new (self) Corpus(ranking_of(match_type_named(match_type)));
            },
            nb::arg("match_type") = "learned")
        .def(
            "add",
            [](Corpus& corpus, const Buffer<int32_t>& tokens) {
                check_token_ids(tokens);
                if (corpus.is_frozen())
                    throw std::invalid_argument("an index reads this corpus now; build another one");
                nb::gil_scoped_release release;
                corpus.add(tokens.data(), tokens.size());
            },
            nb::arg("tokens"))
        .def_prop_ro("num_tokens", &Corpus::num_tokens)
        .def_prop_ro("num_bytes", &Corpus::bytes);

    nb::class_<Index>(m, "Index")
        .def("__init__", &init_index, nb::kw_only(), nb::arg("match_type"), nb::arg("capacity"), nb::arg("generations"),
             nb::arg("shared"), nb::arg("min_match"), nb::arg("max_match"), nb::arg("min_breadth"),
             nb::arg("max_breadth"), nb::arg("max_depth"), nb::arg("min_survival"), nb::arg("threads") = 2)
        .def(
            "start",
            [](Index& index, const std::string& name_space, const Buffer<int32_t>& prompt) {
                check_token_ids(prompt);
                nb::gil_scoped_release release;
                return index.start(name_space, prompt.data(), prompt.size());
            },
            nb::arg("namespace"), nb::arg("prompt"))
        .def("step", &step, nb::arg("handles"), nb::arg("tokens"), nb::arg("counts"), nb::arg("limits"),
             nb::arg("certain") = nb::none(), nb::arg("certain_counts") = nb::none())
        .def(
            "stop",
            [](Index& index, Handle handle, const Buffer<int32_t>& tokens) {
                check_token_ids(tokens);
                nb::gil_scoped_release release;
                index.stop(handle, tokens.data(), tokens.size());
            },
            nb::arg("handle"), nb::arg("tokens"))
        .def(
            "add_corpus",
            [](Index& index, const std::string& name, std::shared_ptr<Corpus> corpus) {
                if (corpus->ranking() != index.ranking())
                    throw std::invalid_argument("the corpus was built for another match_type");
                corpus->freeze();
                nb::gil_scoped_release release;
                index.add_corpus(name, std::move(corpus));
            },
            nb::arg("name"), nb::arg("corpus"))
        .def(
            "remove_corpus",
            [](Index& index, const std::string& name) {
                nb::gil_scoped_release release;
                return index.remove_corpus(name);
            },
            nb::arg("name"))
        .def("stats", &stats);
}
