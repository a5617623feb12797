// One request: its own text, where it stands in the text of others, and what it has learned about its guesses.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "automaton/suffix_automaton.hpp"
#include "drafting/alignment.hpp"
#include "drafting/tree_builder.hpp"
#include "estimation/calibration.hpp"
#include "estimation/predictor.hpp"
#include "index/shared_text.hpp"

namespace ngram {

struct Settings {
    Order order;
    bool shared;
    Limits limits;
};

// What all requests learn together.
struct Experience {
    Predictor predictor{nullptr};
    Calibration calibration{nullptr};
};

class Session {
   public:
    Session(Library& library, Experience& experience, const Settings& settings, const std::string& name_space);

    // A token of the prompt.
    void enter(Token token);
    // A token that was decided: first a lesson, then text.
    void append(Token token);

    // Before a draft, in this order; the first two while no other request's draft is being grown.
    // What became of the last draft teaches the calibration.
    void settle();
    // Lists the sources anew where generations or corpora came or went. May begin a generation and so drop an old one,
    // which other requests may still read until the next token is entered.
    void list_sources();
    // Only reads what requests share: drafts of several requests may be grown at the same time.
    void draft(TreeGrower& grower, uint32_t limit, std::vector<DraftNode>& nodes);

    // Nothing comes any more.
    void leave() { library_.leave(std::move(shelf_)); }

    size_t bytes() const;

    // Fetch into the cache what the next call will need, a step further each time.
    void prefetch() const;
    void prefetch_places() const;

    std::vector<Token> backlog;  // prompt tokens that are still to be entered, from `entered` on
    size_t entered = 0;
    uint64_t last_step = 0;  // the number of the last step that it was part of

   private:
    void follow_sources();
    void learn(Token token);
    void judge(Token token);
    void add_source(const Automaton& automaton, Kind kind, uint64_t id, const std::vector<uint64_t>& before);

    Library& library_;
    const Settings& settings_;
    std::shared_ptr<Shelf> shelf_;

    Automaton own_;
    StateId own_last_ = kRoot;
    Text text_;
    Trace trace_;

    static constexpr uint64_t kOwnId = 0;
    uint64_t version_ = 0;            // of the shelf, when the sources were last listed
    std::vector<Source> sources_;     // own text first, then the generation that this text is written into
    std::vector<uint64_t> followed_;  // their ids
    std::vector<Place> places_, old_places_;
    Generation* shared_ = nullptr;  // null where nothing is shared
    uint64_t shared_id_ = 0;
    StateId shared_last_ = kRoot;

    Predictor predictor_;
    Calibration calibration_;
    std::vector<DraftNode> proposed_;  // the last draft, survival as it was before calibration
    std::vector<bool> came_true_, open_;
    uint32_t proposed_habit_ = 0;
    int32_t true_node_ = -1;  // the deepest that came true
    bool off_draft_ = false;  // a token came that is not in the draft
};

}  // namespace ngram
