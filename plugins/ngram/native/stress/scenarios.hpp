// What the stress program runs. Each scenario aborts where the index violates an invariant.
#pragma once

#include "stress/workload.hpp"

namespace ngram::stress {

// One caller, deterministic.
void run_small_batches(MatchType match_type, bool shared, uint64_t capacity, uint32_t alphabet, double min_survival);
void run_large_degrees(MatchType match_type);
void run_long_prompts();
void run_large_batches(MatchType match_type, uint64_t capacity);

// Several callers of one index at the same time.
void run_concurrent_callers(double seconds, MatchType match_type, size_t num_requests, uint64_t capacity);

}  // namespace ngram::stress
