// Prior probabilities of candidates: the estimates of a server that has seen no text yet.
//
// Measured on files of Python's standard library, on edited versions of them and on continuations by the demo model at
// temperatures 0.8 and 1, and smoothed by hand. None of these texts is in the replay benchmark; the benchmark of
// speculation decodes other text of the demo model. Observed hits outweigh a prior after a few trials with the same
// features.
#pragma once

#include <algorithm>

#include "estimation/features.hpp"

namespace ngram {

// P(hit) of a context's first candidate, by length bucket; later ones and those that the alignment does not predict
// have a share of it.
constexpr double kFirstOfOwnText[kLengthBuckets] = {.15, .37, .49, .50, .55, .68, .72, .76, .82, .92, .97, .99};
constexpr double kFirstOfOtherText[kLengthBuckets] = {.08, .15, .22, .32, .40, .53, .72, .86, .93, .96, .97, .98};
constexpr double kLaterShareOfOwnText = .45, kLaterShareOfOtherText = .35;
constexpr double kUnpredictedShare = .7, kMismatchShare = .5;

// P(hit) of a context's first candidate, by degree bucket and count bucket; of later ones, by rank.
constexpr double kFirstByCount[kDegreeBuckets][kCountBuckets] = {
    {.35, .61, .80, .95}, {.13, .30, .43, .74}, {.10, .18, .34, .40}, {.06, .09, .14, .22}};
constexpr double kLaterByRank[kRankBuckets] = {0, .10, .065, .05};  // rank 0 is the first

// P(hit) of the alignment's predictions, by run bucket. After an edit, substitutions realign most often.
constexpr double kFirstOfAlignment = .46, kLaterOfAlignment = .07;
constexpr double kPredictedByRun[kRunBuckets] = {.45, .55, .73, .93, .95, .96};
constexpr double kAfterInsertionByRun[kRunBuckets] = {.06, .05, .04, .03, .02, .02};
constexpr double kAfterSubstitutionByRun[kRunBuckets] = {.14, .07, .04, .03, .02, .02};
constexpr double kAfterDeletionPrior = .27;

// P(hit) of a context's candidate that the alignment predicts too: while aligned, while diverged.
constexpr double kPredictedToo = .85, kRealigningToo = .65;

// By origin, length bucket, and whether it is the first candidate of its context.
inline double prior_by_origin(Origin origin, uint32_t length, bool is_first) {
    if (origin == Origin::kAlignment) return is_first ? kFirstOfAlignment : kLaterOfAlignment;
    bool is_own = origin == Origin::kOwnText;
    double first = is_own ? kFirstOfOwnText[length] : kFirstOfOtherText[length];
    return is_first ? first : first * (is_own ? kLaterShareOfOwnText : kLaterShareOfOtherText);
}

// Of a prediction of the alignment, by relation and run bucket.
inline double prior_of_prediction(Relation relation, uint32_t run) {
    switch (relation) {
        case Relation::kPredicted: return kPredictedByRun[run];
        case Relation::kAfterInsertion: return kAfterInsertionByRun[run];
        case Relation::kAfterSubstitution: return kAfterSubstitutionByRun[run];
        default: return kAfterDeletionPrior;
    }
}

// By origin, length bucket, relation and run bucket.
inline double prior_by_length(Origin origin, uint32_t length, Relation relation, uint32_t run) {
    if (origin == Origin::kAlignment) return prior_of_prediction(relation, run);
    double first = prior_by_origin(origin, length, true);
    switch (relation) {
        case Relation::kPredicted: return std::max(first, kPredictedToo);
        case Relation::kAfterInsertion:
        case Relation::kAfterSubstitution:
        case Relation::kAfterDeletion: return std::max(first, kRealigningToo);
        case Relation::kMismatch: return first * kMismatchShare;
        default: return first * kUnpredictedShare;
    }
}

// By origin, rank bucket, relation, degree bucket and count bucket; predictions have their run's bucket for the count.
inline double prior_by_rank(Origin origin, uint32_t rank, Relation relation, uint32_t degree, uint32_t count) {
    if (origin == Origin::kAlignment) return prior_of_prediction(relation, count);
    switch (relation) {
        case Relation::kPredicted: return kPredictedToo;
        case Relation::kAfterInsertion:
        case Relation::kAfterSubstitution:
        case Relation::kAfterDeletion: return kRealigningToo;
        default: return rank == 0 ? kFirstByCount[degree][count] : kLaterByRank[rank];
    }
}

}  // namespace ngram
