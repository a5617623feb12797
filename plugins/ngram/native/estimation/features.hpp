// What is known of one candidate for the next token: what its learned probability depends on.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ngram {

// What proposes a candidate: a context in the request's own text, in text that requests share, in a corpus, or
// the request's alignment with an earlier part of its own text.
enum class Kind : uint8_t { kOwn, kShared, kCorpus, kAligned };
constexpr uint32_t kKinds = 4;

// What the alignment says of a candidate.
enum class Relation : uint8_t { kNone, kNext, kOther, kAfterInsertion, kAfterReplacement, kNearest, kLost };
constexpr uint32_t kRelations = 7;

struct Evidence {
    Kind kind;
    Relation relation;
    uint32_t length;   // of the matched context, in tokens
    uint32_t rank;     // among the continuations of that context
    uint32_t count;    // how often the candidate followed it
    uint32_t total;    // how often the continuations that are looked at followed it, together
    uint32_t degree;   // different continuations
    uint32_t stretch;  // tokens for which the alignment has held, or since it was lost
};

constexpr uint32_t kLengths = 12, kRanks = 4, kCounts = 4, kDegrees = 4, kStretches = 6, kHabits = 8;

inline uint32_t log2_bucket(uint32_t value, uint32_t buckets) {
    return std::min(31u - static_cast<uint32_t>(__builtin_clz(value | 1u)), buckets - 1);
}

inline uint32_t length_bucket(uint32_t length) {
    constexpr uint32_t kUpTo[kLengths - 1] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64};
    uint32_t bucket = 0;
    while (bucket < kLengths - 1 && length > kUpTo[bucket]) ++bucket;
    return bucket;
}

inline uint32_t degree_bucket(uint32_t degree) { return degree <= 2 ? degree - 1 : degree <= 4 ? 2 : 3; }

}  // namespace ngram
