#include "bindings/tuning.hpp"

#include "estimation/priors.hpp"
#include "index/index.hpp"

namespace nb = nanobind;

namespace ngram {

namespace {

struct Tuning {};

void bind_enums(nb::module_& m) {
    nb::enum_<Origin>(m, "Origin")
        .value("OWN_TEXT", Origin::kOwnText)
        .value("SHARED_TEXT", Origin::kSharedText)
        .value("CORPUS", Origin::kCorpus)
        .value("ALIGNMENT", Origin::kAlignment);
    nb::enum_<Relation>(m, "Relation")
        .value("UNALIGNED", Relation::kUnaligned)
        .value("PREDICTED", Relation::kPredicted)
        .value("MISMATCH", Relation::kMismatch)
        .value("AFTER_INSERTION", Relation::kAfterInsertion)
        .value("AFTER_SUBSTITUTION", Relation::kAfterSubstitution)
        .value("AFTER_DELETION", Relation::kAfterDeletion)
        .value("DIVERGED", Relation::kDiverged);
}

void bind_matching(nb::class_<Tuning>& t) {
    t.attr("MAX_TOP") = kMaxTop;
    t.attr("MAX_COUNTED") = SuffixAutomaton::kMaxCounted;
    t.attr("MAX_SOURCES") = kMaxSources;
    t.attr("MAX_CONTEXTS") = kMaxContexts;
    t.attr("MIN_CHARGE") = SharedText::kMinCharge;
    t.attr("REMATCH_TOKENS") = Request::kRematchTokens;
    t.attr("PARALLEL_DRAFTS") = Index::kParallelDrafts;
}

void bind_drafting(nb::class_<Tuning>& t) {
    t.attr("SEARCH_WINDOW") = Alignment::kSearchWindow;
    t.attr("MAX_DIVERGENCE") = Alignment::kMaxDivergence;
    t.attr("REALIGN_LENGTH") = Alignment::kRealignLength;
    t.attr("HIT_RATE_UPDATE") = Alignment::kHitRateUpdate;
    t.attr("MIN_MASS") = kMinMass;
    t.attr("PROMISING_FACTOR") = kPromisingFactor;
    t.attr("MAX_MISSES") = kMaxMisses;
    t.attr("LEARNED_PER_CONTEXT") = kLearnedPerContext;
    t.attr("ESCAPE_PROBABILITY") = kEscapeProbability;
}

void bind_estimation(nb::class_<Tuning>& t) {
    nb::list bounds;
    for (uint32_t bound : kLengthBounds) bounds.append(bound);
    t.attr("LENGTH_BOUNDS") = nb::tuple(bounds);
    t.attr("RANK_BUCKETS") = kRankBuckets;
    t.attr("COUNT_BUCKETS") = kCountBuckets;
    t.attr("RUN_BUCKETS") = kRunBuckets;
    t.attr("HIT_RATE_BUCKETS") = kHitRateBuckets;
    t.attr("POINT") = Rate::kPoint;
    t.attr("GLOBAL_DECAY_SHIFT") = Predictor::kGlobalDecayShift;
    t.attr("REQUEST_DECAY_SHIFT") = Predictor::kRequestDecayShift;
    t.attr("GLOBAL_PRIOR_TRIALS") = Predictor::kGlobalPriorTrials;
    t.attr("REQUEST_PRIOR_TRIALS") = Predictor::kRequestPriorTrials;
    t.attr("GLOBAL_LEARNING_RATE") = Predictor::kGlobalLearningRate;
    t.attr("REQUEST_LEARNING_RATE") = Predictor::kRequestLearningRate;
    t.attr("INITIAL_WEIGHT") = Predictor::kInitialWeight;
    t.attr("MAX_PROBABILITY") = Predictor::kMaxProbability;
    t.def_static("prior_by_origin", &prior_by_origin);
    t.def_static("prior_by_length", &prior_by_length);
    t.def_static("prior_by_rank", &prior_by_rank);
}

void bind_calibration(nb::class_<Tuning>& t) {
    t.attr("KNOTS") = Calibration::kKnots;
    t.attr("MAX_LOG_ODDS") = Calibration::kMaxLogOdds;
    t.attr("MIN_SURVIVAL") = Calibration::kMinSurvival;
    t.attr("MAX_SURVIVAL") = Calibration::kMaxSurvival;
    t.attr("GLOBAL_DECAY") = Calibration::kGlobalDecay;
    t.attr("REQUEST_DECAY") = Calibration::kRequestDecay;
    t.attr("GLOBAL_CURVE_TRIALS") = Calibration::kGlobalPriorTrials;
    t.attr("REQUEST_CURVE_TRIALS") = Calibration::kRequestPriorTrials;
    t.attr("MIN_OUTCOME_WEIGHT") = Request::kMinOutcomeWeight;
}

}  // namespace

void bind_tuning(nb::module_& m) {
    bind_enums(m);
    nb::class_<Tuning> tuning(m, "Tuning");
    bind_matching(tuning);
    bind_drafting(tuning);
    bind_estimation(tuning);
    bind_calibration(tuning);
}

}  // namespace ngram
