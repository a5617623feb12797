// The features of one candidate for the next token, from which the probability that it comes next is estimated.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ngram {

// What proposes a candidate: a context in the request's own text, in text that requests share or in a corpus, or the
// alignment of the request's text with an earlier part of itself.
enum class Origin : uint8_t { kOwnText, kSharedText, kCorpus, kAlignment };
constexpr uint32_t kOrigins = 4;

// What the alignment predicts about a candidate. Unaligned: there is none. Aligned: the candidate is the predicted
// token or a mismatch. Diverged: the candidate would realign the text as after an insertion, a substitution or a
// deletion, or leave it diverged.
enum class Relation : uint8_t {
    kUnaligned,
    kPredicted,
    kMismatch,
    kAfterInsertion,
    kAfterSubstitution,
    kAfterDeletion,
    kDiverged
};
constexpr uint32_t kRelations = 7;

struct Features {
    Origin origin;
    Relation relation;
    uint32_t match_length;  // tokens of the matched context
    uint32_t rank;          // among the continuations of that context, or the alignment's predictions
    uint32_t count;         // occurrences of the candidate after the context
    uint32_t total;         // occurrences of all continuations that are considered
    uint32_t degree;        // different continuations
    uint32_t run_length;    // tokens since the alignment began, or since it diverged
};

// Numbers of buckets; the last bucket of each is open.
constexpr uint32_t kLengthBuckets = 12, kRankBuckets = 4, kCountBuckets = 4, kDegreeBuckets = 4, kRunBuckets = 6;
constexpr uint32_t kHitRateBuckets = 8;  // of the share of recent tokens that were predicted
constexpr uint32_t kLengthBounds[kLengthBuckets - 1] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64};  // tokens, inclusive

inline uint32_t log2_bucket(uint32_t value, uint32_t buckets) {
    return std::min(31u - static_cast<uint32_t>(__builtin_clz(value | 1u)), buckets - 1);
}

inline uint32_t length_bucket(uint32_t length) {
    uint32_t bucket = 0;
    while (bucket < kLengthBuckets - 1 && length > kLengthBounds[bucket]) ++bucket;
    return bucket;
}

// 1, 2, 3 to 4, more.
inline uint32_t degree_bucket(uint32_t degree) { return degree <= 2 ? degree - 1 : degree <= 4 ? 2 : 3; }

}  // namespace ngram
