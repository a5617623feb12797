// Runs a planner over random requests and drafts, and checks what it answers: for sanitizers. Argument: the seed.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "planning/planner.hpp"

using namespace adaptive;

namespace {

constexpr int kSteps = 3000, kMost = 24, kVocabulary = 6, kSources = 3;

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "not true: %s\n", what);
    std::exit(1);
}

class Workload {
   public:
    Workload(Objective objective, unsigned seed) : random_(seed), planner_(objective, 0.005) {}

    void step() {
        begin_and_end();
        std::vector<Request*> known;
        std::vector<const Draft*> proposed;
        for (Running& each : running_) {
            known.push_back(planner_.find_or_begin(each.id, each.temperature));
            proposed.push_back(each.has_draft ? &each.draft : nullptr);
        }
        if (std::any_of(proposed.begin(), proposed.end(), [](const Draft* draft) { return draft != nullptr; })) {
            choose(known, proposed);
        } else {
            chosen_.assign(known.size(), {});
        }
        draft(known);
        for (std::size_t i = 0; i < running_.size(); ++i) learn(*known[i], running_[i], chosen_[i]);
        if (planner_.idle_steps() > 0) planner_.skip(number(0, static_cast<int>(planner_.idle_steps())));
        require(std::isfinite(planner_.stats.calibration.value()), "the calibration error is a number");
    }

   private:
    struct Running {
        std::string id;
        double temperature;
        int64_t num_tokens;
        bool declines;
        bool has_draft = false;
        Draft draft{};
        Draft next{};
    };

    int number(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
    double share() { return std::uniform_real_distribution<double>(0.0, 1.0)(random_); }

    void begin_and_end() {
        if (running_.size() < 12 && number(0, 3) == 0)
            running_.push_back(
                {"r" + std::to_string(num_begun_++), 0.25 * number(0, 20), number(1, 500), number(0, 9) == 0});
        if (!running_.empty() && number(0, 15) == 0) {
            std::size_t at = static_cast<std::size_t>(number(0, static_cast<int>(running_.size()) - 1));
            if (number(0, 1)) planner_.forget(running_[at].id);  // else it was aborted: nobody told the planner
            running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(at));
        }
        if (number(0, 200) == 0) {
            std::vector<std::string> ids;
            for (const Running& each : running_) ids.push_back(each.id);
            planner_.keep_only(ids);
        }
    }

    void draft(const std::vector<Request*>& known) {
        std::vector<Candidate> candidates;
        for (std::size_t i = 0; i < known.size(); ++i)
            candidates.push_back({known[i], running_[i].declines ? 0 : number(1, kMost), running_[i].num_tokens});
        double plain = number(0, 50) == 0 ? 0.0 : 1e-3 * (1.0 + share());
        double per_request = known.empty() ? 0.0 : plain / static_cast<double>(known.size());
        std::vector<int32_t> limits;
        bool measures = number(0, 20) == 0;
        if (measures)
            planner_.measure(candidates, limits);
        else
            planner_.limits(candidates, {per_request, 1e-4 * share(), plain}, limits);
        require(limits.size() == known.size(), "there is a limit for every request");
        std::size_t num_drafting = 0;
        for (std::size_t i = 0; i < limits.size(); ++i) {
            require(limits[i] >= 0 && limits[i] <= candidates[i].most, "limits are within what is useful");
            require(limits[i] == 0 || !measures, "nobody is drafted for where plain steps are measured");
            num_drafting += limits[i] > 0;
            running_[i].has_draft = limits[i] > 0 && number(0, 9) > 0;
            if (running_[i].has_draft) running_[i].next = draft(limits[i]);
        }
        require(planner_.idle_steps() == 0 || num_drafting == 0, "nobody is drafted for before idle steps");
        if (num_drafting > 0 && number(0, 3))
            planner_.observe_drafting(1e-4 * share() * number(0, 20), num_drafting, 1e-5 * number(0, 9));
    }

    Draft draft(int32_t most) {
        Draft made;
        made.source = number(0, kSources - 1);
        made.is_chain = number(0, 2) > 0;
        bool states = number(0, 3) > 0;
        int size = number(1, most);
        for (int32_t node = 0; node < size; ++node) {
            made.tokens.push_back(number(0, kVocabulary - 1));
            made.parents.push_back(made.is_chain ? node - 1 : number(-1, node - 1));
            if (!states) continue;
            double above = made.parents[node] == kRoot ? 1.0 : made.stated[made.parents[node]];
            made.stated.push_back(above * (number(0, 9) ? share() : static_cast<double>(number(0, 1))));
        }
        return made;
    }

    void choose(const std::vector<Request*>& known, const std::vector<const Draft*>& proposed) {
        std::size_t all = 0;
        for (const Draft* each : proposed) all += each == nullptr ? 0 : static_cast<std::size_t>(each->size());
        std::size_t most = static_cast<std::size_t>(number(0, static_cast<int>(all)));
        std::vector<double> seconds{1e-3};
        for (std::size_t n = 1; n <= most; ++n) seconds.push_back(seconds.back() + 1e-4 * share() * number(0, 9));
        planner_.choose(known, proposed, seconds.data(), most, chosen_);
        std::size_t count = 0;
        for (std::size_t i = 0; i < chosen_.size(); ++i) {
            count += chosen_[i].size();
            require(chosen_[i].empty() || proposed[i] != nullptr, "only what was proposed is verified");
            std::vector<char> taken(proposed[i] == nullptr ? 0 : proposed[i]->parents.size(), 0);
            for (int32_t node : chosen_[i]) {
                int32_t parent = proposed[i]->parents.at(static_cast<std::size_t>(node));
                require(!taken[node] && (parent == kRoot || taken[parent]),
                        "parents are verified before their children");
                taken[node] = 1;
            }
        }
        require(count <= most, "no more is verified than may be");
    }

    void learn(Request& known, Running& running, const std::vector<int32_t>& chosen) {
        Outcome outcome{};
        outcome.request = &known;
        outcome.proposed = running.draft.parents.empty() ? nullptr : &running.draft;
        outcome.drafted = static_cast<int64_t>(chosen.size());
        outcome.decodes = number(0, 9) > 0;
        int accepted = chosen.empty() ? 0 : number(0, static_cast<int>(chosen.size()));
        for (int32_t node = 0; node < accepted; ++node) outcome.path.push_back(node);
        for (int n = number(0, 20) ? accepted + 1 : 0; n > 0; --n) outcome.tokens.push_back(number(0, kVocabulary - 1));
        running.num_tokens += static_cast<int64_t>(outcome.tokens.size());
        planner_.learn(outcome);
        running.draft = running.has_draft ? running.next : Draft{};
    }

    std::mt19937 random_;
    Planner planner_;
    std::vector<Running> running_;
    std::vector<std::vector<int32_t>> chosen_;
    int64_t num_begun_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
    unsigned seed = count > 1 ? static_cast<unsigned>(std::atoi(arguments[1])) : 0;
    for (Objective objective : {Objective::kFair, Objective::kThroughput, Objective::kLatency}) {
        Workload workload(objective, seed++);
        for (int step = 0; step < kSteps; ++step) workload.step();
    }
    std::puts("stress: ok");
    return 0;
}
