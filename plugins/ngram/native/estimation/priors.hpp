// What a new server believes before it has seen anything, as the lessons of other texts left it.
//
// Measured on files of Python's standard library, edited versions of them, and what the demo model wrote behind them at
// temperatures 0.8 and 1, and smoothed by hand. None of these texts is in the replay benchmark; the demo model's own,
// of which `pays` decodes others, are of the same kind. What comes true outweighs it after some trials of the same
// evidence.
#pragma once

#include <algorithm>

#include "estimation/features.hpp"

namespace ngram {

// P(hit) of the first candidate of a context, by the length of the context.
constexpr double kFirstOfOwn[kLengths] = {.15, .37, .49, .50, .55, .68, .72, .76, .82, .92, .97, .99};
constexpr double kFirstOfOthers[kLengths] = {.08, .15, .22, .32, .40, .53, .72, .86, .93, .96, .97, .98};
constexpr double kLaterOfOwn = .45, kLaterOfOthers = .35;  // the part of it that the candidates after the first have
constexpr double kAlone = .7;  // the part of it that all candidates have that no alignment speaks of

// The same of a context's best candidate, by how many others there are and how often it came, in buckets.
constexpr double kByCount[kDegrees][kCounts] = {
    {.35, .61, .80, .95}, {.13, .30, .43, .74}, {.10, .18, .34, .40}, {.06, .09, .14, .22}};
constexpr double kByRank[kRanks] = {0, .10, .065, .05};  // of those after it

// The same of what the alignment guesses, by how long it has held or been lost.
constexpr double kNextByStretch[kStretches] = {.45, .55, .73, .93, .95, .96};
constexpr double kAligned = .46, kAlignedLater = .07;
constexpr double kAfterInsertion[kStretches] = {.06, .05, .04,
                                                .03, .02, .02};  // by how long it has been lost; text that
constexpr double kAfterReplacement[kStretches] = {.14, .07, .04,
                                                  .03, .02, .02};  // is an edit finds back more often than most
constexpr double kNearest = .27;

// The same of a candidate of a context by what the alignment says of it.
constexpr double kConfirmed = .85, kBeside = .65, kContradicted = .5;  // the last is a part of what it would have alone

inline bool is_own(Kind kind) { return kind == Kind::kOwn; }

inline double prior_alone(Kind kind, uint32_t length, bool is_first) {
    if (kind == Kind::kAligned) return is_first ? kAligned : kAlignedLater;
    double first = is_own(kind) ? kFirstOfOwn[length] : kFirstOfOthers[length];
    return is_first ? first : first * (is_own(kind) ? kLaterOfOwn : kLaterOfOthers);
}

inline double prior_of_guess(Relation relation, uint32_t stretch) {
    switch (relation) {
        case Relation::kNext: return kNextByStretch[stretch];
        case Relation::kAfterInsertion: return kAfterInsertion[stretch];
        case Relation::kAfterReplacement: return kAfterReplacement[stretch];
        default: return kNearest;
    }
}

inline double prior_by_length(Kind kind, uint32_t length, Relation relation, uint32_t stretch) {
    if (kind == Kind::kAligned) return prior_of_guess(relation, stretch);
    double alone = prior_alone(kind, length, true);
    switch (relation) {
        case Relation::kNext: return std::max(alone, kConfirmed);
        case Relation::kAfterInsertion:
        case Relation::kAfterReplacement:
        case Relation::kNearest: return std::max(alone, kBeside);
        case Relation::kOther: return alone * kContradicted;
        default: return alone * kAlone;
    }
}

inline double prior_by_rank(Kind kind, uint32_t rank, Relation relation, uint32_t degree, uint32_t count) {
    if (kind == Kind::kAligned) return prior_of_guess(relation, count);  // which is the stretch's bucket there
    double alone = rank == 0 ? kByCount[degree][count] : kByRank[rank];
    switch (relation) {
        case Relation::kNext: return kConfirmed;
        case Relation::kAfterInsertion:
        case Relation::kAfterReplacement:
        case Relation::kNearest: return kBeside;
        default: return alone;
    }
}

}  // namespace ngram
