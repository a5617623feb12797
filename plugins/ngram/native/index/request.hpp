// One request: its own text, its matches there and in shared text, and the statistics of its candidates and drafts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "automaton/match.hpp"
#include "automaton/suffix_automaton.hpp"
#include "drafting/alignment.hpp"
#include "drafting/tree_builder.hpp"
#include "estimation/calibration.hpp"
#include "estimation/predictor.hpp"
#include "index/shared_text.hpp"

namespace ngram {

struct Settings {
    bool shared;  // requests of one namespace are matched against each other's text
    DraftOptions draft;
};

// What all requests of a server learn together. It holds no text.
struct GlobalStatistics {
    Predictor predictor{nullptr};
    Calibration calibration{nullptr};
};

class Request {
   public:
    static constexpr size_t kRematchTokens = 64;  // the newest ones, which find the match in a source that is added
    static constexpr double kMinOutcomeWeight = 0.05;  // of a node that is certain once its parent is accepted

    Request(SharedText& shared_text, GlobalStatistics& global, const Settings& settings, const std::string& name_space);

    // Adds a token of the prompt to the text.
    void add_to_text(Token token);
    // Learns from a token that was generated, then adds it to the text.
    void commit(Token token);

    // Before a draft, in this order; the first two while no draft of any request is being built.
    // The outcome of the last draft corrects the calibration.
    void update_calibration();
    // Finds the generations and corpora that were added since. May begin a generation and so evict an old one, which
    // other requests may still read until the next token is added.
    void update_sources();
    // A draft that begins behind `num_certain` tokens, which are certain to come next. Only reads what requests share:
    // drafts of several requests may be built at the same time.
    void draft(TreeBuilder& builder, uint32_t limit, std::vector<DraftNode>& nodes, const Token* certain,
               size_t num_certain);

    // No token follows.
    void release() { shared_text_.release(std::move(namespace_)); }

    size_t bytes() const;

    // Fetch into the cache what the next call needs; the second needs what the first has fetched.
    void prefetch() const;
    void prefetch_matches() const;

    std::vector<Token> pending;  // the tokens from `num_added` on are still to be added to the text
    size_t num_added = 0;
    uint64_t last_step = 0;  // number of the last step with this request

   private:
    void update_matches();
    void update_predictor(Token token);
    void follow_draft(Token token);
    void add_source(const SuffixAutomaton& automaton, Origin origin, uint64_t id, const std::vector<uint64_t>& old_ids);

    SharedText& shared_text_;
    const Settings& settings_;
    std::shared_ptr<Namespace> namespace_;

    SuffixAutomaton own_;
    StateId own_state_ = kRoot;  // of the whole text
    Text text_;
    Alignment alignment_;

    static constexpr uint64_t kOwnId = 0;
    uint64_t version_ = 0;         // of the namespace when the sources were updated
    std::vector<Source> sources_;  // own text, then the generation that this text is appended to, then the others
    std::vector<uint64_t> source_ids_;
    std::vector<Match> matches_, old_matches_;
    Generation* generation_ = nullptr;  // that this text is appended to; null where nothing is shared
    uint64_t generation_id_ = 0;
    StateId shared_state_ = kRoot;  // of this text in that generation

    Predictor predictor_;
    Calibration calibration_;
    Text certain_;                    // the tokens behind which the last draft began,
    size_t num_certain_came_ = 0;     // and how many of them have come
    std::vector<DraftNode> drafted_;  // the last draft, with survival estimates before calibration
    std::vector<bool> accepted_, undecided_;
    uint32_t drafted_hit_rate_ = 0;
    int32_t deepest_accepted_ = -1;
    bool left_draft_ = false;  // a token came that is not in the draft
};

}  // namespace ngram
