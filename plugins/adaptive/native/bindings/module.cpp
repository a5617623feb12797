// The Python module: the planner, fed with the engine's own objects.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/python_objects.hpp"
#include "planning/planner.hpp"

namespace nb = nanobind;
using namespace adaptive;

namespace {

using Seconds = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

constexpr std::size_t kSpareRecords = 64;

Objective objective_named(const std::string& name) {
    if (name == "fair") return Objective::kFair;
    if (name == "throughput") return Objective::kThroughput;
    if (name == "latency") return Objective::kLatency;
    throw std::invalid_argument("objective must be fair, throughput or latency; got '" + name + "'");
}

// A planner and what it reads Python objects with. One thread at a time calls it: the engine's.
class BoundPlanner {
   public:
    BoundPlanner(const std::string& objective, double min_gain) : planner_(objective_named(objective), min_gain) {}
    BoundPlanner(const BoundPlanner&) = delete;

    nb::list limits(nb::handle requests, int64_t most, double accepted, double verified, double plain_step) {
        read_asked(requests, most);
        planner_.limits(candidates_, {accepted, verified, plain_step}, limits_);
        return limits_list();
    }

    nb::list measure(nb::handle requests, int64_t most) {
        read_asked(requests, most);
        planner_.measure(candidates_, limits_);
        return limits_list();
    }

    double usual_gain() const { return planner_.usual_gain(); }

    // Of each request: None, the number of its draft's first tokens, or the nodes to verify.
    nb::list choose(nb::handle requests, const Seconds& seconds, int64_t budget) {
        static const Name draft("draft");
        std::size_t count = size_of(requests);
        drafts_.resize(std::max(drafts_.size(), count));
        known_.clear();
        proposed_.clear();
        for_each(requests, [&](nb::handle request) {
            Request* known = &known_of(request);
            nb::object own = draft.of(request);
            Draft& read = drafts_[known_.size()];
            if (!own.is_none()) read_shape(own, sources_, known->warmth, read);
            proposed_.push_back(own.is_none() ? nullptr : &read);
            known_.push_back(known);
        });
        if (seconds.size() == 0) throw std::invalid_argument("seconds must begin with those of a plain step");
        std::size_t most = std::min(seconds.size() - 1, static_cast<std::size_t>(std::max<int64_t>(budget, 0)));
        planner_.choose(known_, proposed_, seconds.data(), most, chosen_);
        nb::list result;
        for (const std::vector<int32_t>& nodes : chosen_) result.append(as_choice(nodes));
        return result;
    }

    void learn(nb::handle spans, nb::list decided) {
        static const Name request_name("request"), id("id"), proposed("proposed"), drafted("drafted"), length("length"),
            tokens("tokens"), path("path"), finish_reason("finish_reason");
        if (size_of(spans) != decided.size()) throw std::invalid_argument("there must be a verdict for every span");
        std::size_t at = 0;
        for_each(spans, [&](nb::handle span) {
            nb::object verdict = decided[at++];
            std::string name = as_text(id.of(request_name.of(span)));
            Request* known = planner_.find(name);
            if (known != nullptr) {
                nb::object draft = proposed.of(span);
                outcome_.request = known;
                outcome_.proposed = nullptr;
                if (!draft.is_none()) {
                    read_draft(draft, sources_, known->warmth, draft_);
                    outcome_.proposed = &draft_;
                }
                outcome_.drafted = as_int(drafted.of(span));
                outcome_.decodes = as_int(length.of(span)) - outcome_.drafted == 1;
                outcome_.tokens.clear();
                outcome_.path.clear();
                for_each(tokens.of(verdict), [&](nb::handle token) { outcome_.tokens.push_back(as_int(token)); });
                for_each(path.of(verdict),
                         [&](nb::handle node) { outcome_.path.push_back(static_cast<int32_t>(as_int(node))); });
                planner_.learn(outcome_);
                if (!finish_reason.of(verdict).is_none()) planner_.forget(name);
            }
        });
    }

    nb::object request_stats(const std::string& id) {
        Request* known = planner_.find(id);
        if (known == nullptr) return nb::none();
        nb::dict result = numbers(known->stats);
        return result;
    }

    void forget(const std::string& id) { planner_.forget(id); }

    nb::dict stats() {
        nb::dict result = numbers(planner_.stats);
        nb::list widths;
        for (int64_t count : planner_.stats.widths) widths.append(count);
        result["widths"] = widths;
        result["calibration_error"] = planner_.stats.calibration.value();
        return result;
    }

    int64_t idle_steps() const { return planner_.idle_steps(); }

    void skip(int64_t steps) { planner_.skip(steps); }

    void observe_drafting(double seconds, int64_t num_drafting, double pass_seconds) {
        planner_.observe_drafting(seconds, static_cast<std::size_t>(std::max<int64_t>(num_drafting, 0)), pass_seconds);
    }

    double drafting_cost(int64_t num_drafting, double depth) {
        return planner_.drafting.cost(static_cast<std::size_t>(std::max<int64_t>(num_drafting, 0)), depth);
    }

    double level_seconds(int64_t num_drafting) const {
        return planner_.level_seconds(static_cast<std::size_t>(std::max<int64_t>(num_drafting, 0)));
    }

    nb::list survival(nb::handle draft, nb::handle request) {
        Request& known = known_of(request);
        read_shape(draft, sources_, known.warmth, draft_);
        planner_.survival.estimate(draft_, &known.odds, survival_);
        nb::list result;
        for (double each : survival_) result.append(each);
        return result;
    }

    void observe(nb::handle draft, nb::handle request, nb::handle tokens) {
        read_draft(draft, sources_, known_of(request).warmth, draft_);
        outcome_.tokens.clear();
        for_each(tokens, [&](nb::handle token) { outcome_.tokens.push_back(as_int(token)); });
        planner_.survival.observe(draft_, outcome_.tokens, nullptr);
    }

   private:
    void read_asked(nb::handle requests, int64_t most) {
        static const Name tokens("tokens");
        std::size_t count = size_of(requests);
        if (planner_.num_known() > 2 * count + kSpareRecords) drop_ended(requests);
        candidates_.clear();
        for_each(requests, [&](nb::handle request) {
            int64_t num_tokens = static_cast<int64_t>(size_of(tokens.of(request)));
            int32_t useful = static_cast<int32_t>(most_useful(request, most, num_tokens));
            candidates_.push_back({&known_of(request), useful, num_tokens});
        });
    }

    nb::list limits_list() const {
        nb::list result;
        for (int32_t limit : limits_) result.append(limit);
        return result;
    }

    Request& known_of(nb::handle request) {
        static const Name id("id"), params("params"), temperature("temperature");
        std::string name = as_text(id.of(request));
        Request* known = planner_.find(name);
        if (known != nullptr) return *known;
        return *planner_.find_or_begin(name, as_double(temperature.of(params.of(request))));
    }

    // Draft tokens that could still help: the request's own limit, and none in its last step.
    static int64_t most_useful(nb::handle request, int64_t most, int64_t num_tokens) {
        static const Name speculation("speculation"), enabled("enabled"), max_draft_tokens("max_draft_tokens"),
            max_len("max_len");
        nb::object wish = speculation.of(request);
        if (!nb::cast<bool>(enabled.of(wish))) return 0;
        if (as_int(max_len.of(request)) - num_tokens <= 1) return 0;
        nb::object own = max_draft_tokens.of(wish);
        return own.is_none() ? most : std::min(most, as_int(own));
    }

    void drop_ended(nb::handle requests) {
        static const Name id("id");
        std::vector<std::string> ids;
        for_each(requests, [&](nb::handle request) { ids.push_back(as_text(id.of(request))); });
        planner_.keep_only(ids);
    }

    static nb::object as_choice(const std::vector<int32_t>& nodes) {
        if (nodes.empty()) return nb::none();
        if (nodes.back() == static_cast<int32_t>(nodes.size()) - 1) return nb::int_(nodes.size());
        nb::list result;
        for (int32_t node : nodes) result.append(node);
        return result;
    }

    template <typename Numbers>
    static nb::dict numbers(const Numbers& of) {
        nb::dict steps, result;
        for (int reason = 0; reason < kNumReasons; ++reason) steps[kReasonNames[reason]] = of.steps[reason];
        result["steps"] = steps;
        result["predicted"] = of.predicted;
        result["accepted"] = of.accepted;
        result["verified"] = of.verified;
        return result;
    }

    Planner planner_;
    Sources sources_;
    // kept, so that a step allocates nothing
    std::vector<Candidate> candidates_;
    std::vector<int32_t> limits_;
    std::vector<Request*> known_;
    std::vector<const Draft*> proposed_;
    std::vector<Draft> drafts_;
    std::vector<std::vector<int32_t>> chosen_;
    std::vector<double> survival_;
    Draft draft_;
    Outcome outcome_{};
};

}  // namespace

NB_MODULE(_native, module) {
    module.doc() = "Which draft tokens pay: estimates of survival, the choice, and for whom drafters draft.";
    module.attr("MOST_SLOWDOWN") = kMostSlowdown;
    nb::class_<BoundPlanner>(module, "Planner")
        .def(nb::init<const std::string&, double>(), nb::arg("objective"), nb::arg("min_gain"))
        .def("limits", &BoundPlanner::limits, nb::arg("requests"), nb::arg("most"), nb::arg("accepted"),
             nb::arg("verified"), nb::arg("plain_step"))
        .def("measure", &BoundPlanner::measure, nb::arg("requests"), nb::arg("most"))
        .def("usual_gain", &BoundPlanner::usual_gain)
        .def("choose", &BoundPlanner::choose, nb::arg("requests"), nb::arg("seconds"), nb::arg("budget"))
        .def("learn", &BoundPlanner::learn, nb::arg("spans"), nb::arg("decided"))
        .def("idle_steps", &BoundPlanner::idle_steps)
        .def("skip", &BoundPlanner::skip, nb::arg("steps"))
        .def("observe_drafting", &BoundPlanner::observe_drafting, nb::arg("seconds"), nb::arg("num_drafting"),
             nb::arg("pass_seconds"))
        .def("drafting_cost", &BoundPlanner::drafting_cost, nb::arg("num_drafting"), nb::arg("depth"))
        .def("level_seconds", &BoundPlanner::level_seconds, nb::arg("num_drafting"))
        .def("stats", &BoundPlanner::stats)
        .def("request_stats", &BoundPlanner::request_stats, nb::arg("request_id"))
        .def("forget", &BoundPlanner::forget, nb::arg("request_id"))
        .def("survival", &BoundPlanner::survival, nb::arg("draft"), nb::arg("request"))
        .def("observe", &BoundPlanner::observe, nb::arg("draft"), nb::arg("request"), nb::arg("tokens"));
}
