// The index under load, for the sanitizers: `stress [seconds] [match types]`, by default of all three. Needs no Python.
// Exit status 0: every invariant held.
#include <cstdio>
#include <cstdlib>

#include "stress/scenarios.hpp"

using namespace ngram;
using namespace ngram::stress;

int main(int argc, char** argv) {
    double seconds = argc > 1 ? std::atof(argv[1]) : 2;
    int num_types = argc > 2 ? std::atoi(argv[2]) : 3;
    for (MatchType match_type : {MatchType::kLearned, MatchType::kProb, MatchType::kBfs}) {
        if (num_types-- <= 0) break;
        run_small_batches(match_type, true, 300, 6, 0);
        run_small_batches(match_type, true, 20000, 60, 0.05);
        run_small_batches(match_type, false, 300, 60, 0.01);
        run_large_degrees(match_type);
    }
    run_long_prompts();
    for (MatchType match_type : {MatchType::kLearned, MatchType::kProb, MatchType::kBfs}) {
        run_large_batches(match_type, 400);  // updating the sources of one request evicts those of others
        run_large_batches(match_type, 4000);
        run_concurrent_callers(seconds / 6, match_type, 3, 700);
        run_concurrent_callers(seconds / 6, match_type, kLargeBatch, 4000);
    }
    std::puts("stress: ok");
    return 0;
}
