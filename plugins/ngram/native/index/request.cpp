#include "index/request.hpp"

#include <algorithm>

namespace ngram {

namespace {

// The match of a text in an automaton to which it was just added, itself not counted.
Match match_before(const SuffixAutomaton& automaton, const SuffixAutomaton::Extension& extension) {
    if (extension.is_new) return {automaton.suffix_link(extension.state), automaton.link_length(extension.state)};
    return {extension.state, automaton.length(extension.state)};
}

}  // namespace

Request::Request(SharedText& shared_text, GlobalStatistics& global, const Settings& settings,
                 const std::string& name_space)
    : shared_text_(shared_text), settings_(settings), namespace_(shared_text.acquire(name_space)),
      own_(ranking_of(settings.draft.match_type)), predictor_(&global.predictor), calibration_(&global.calibration) {}

void Request::add_to_text(Token token) {
    update_matches();
    alignment_.advance(text_, text_.empty() ? 0 : text_.back(), token);
    text_.push_back(token);
    auto own = own_.extend(own_state_, token, static_cast<uint32_t>(text_.size() - 1));
    own_state_ = own.state;
    matches_[0] = match_before(own_, own);
    if (settings_.draft.match_type == MatchType::kLearned) alignment_.realign(own.previous_end, matches_[0].length);
    for (size_t s = generation_ != nullptr ? 2 : 1; s < sources_.size(); ++s) {
        matches_[s] = advance(*sources_[s].automaton, matches_[s], token);
    }
    if (generation_ == nullptr) return;
    auto shared = generation_->automaton.extend(shared_state_, token, kNone);
    shared_state_ = shared.state;
    matches_[1] = match_before(generation_->automaton, shared);
    shared_text_.count_token(*generation_);
}

void Request::commit(Token token) {
    update_matches();
    update_predictor(token);
    follow_draft(token);
    add_to_text(token);
}

// Other requests append only to the generation that this one appends to.
void Request::update_matches() {
    update_sources();
    if (generation_ != nullptr) matches_[1] = after_splits(generation_->automaton, matches_[1]);
}

void Request::update_sources() {
    if (version_ == namespace_->version) return;
    std::vector<uint64_t> old_ids;
    old_ids.swap(source_ids_);
    sources_.clear();
    matches_.swap(old_matches_);
    matches_.clear();
    add_source(own_, Origin::kOwnText, kOwnId, old_ids);
    if (settings_.shared) {
        generation_ = &shared_text_.current(*namespace_);
        if (generation_id_ != generation_->id) shared_state_ = kRoot;
        generation_id_ = generation_->id;
        for (const Generation* g : namespace_->generations) {
            add_source(g->automaton, Origin::kSharedText, g->id, old_ids);
        }
    }
    for (const auto& [name, entry] : shared_text_.corpora()) {
        add_source(entry.corpus->automaton(), Origin::kCorpus, entry.id, old_ids);
    }
    version_ = namespace_->version;
}

void Request::add_source(const SuffixAutomaton& automaton, Origin origin, uint64_t id,
                         const std::vector<uint64_t>& old_ids) {
    if (sources_.size() == kMaxSources) return;
    Match match;
    auto known = std::find(old_ids.begin(), old_ids.end(), id);
    if (known != old_ids.end()) {
        match = after_splits(automaton, old_matches_[static_cast<size_t>(known - old_ids.begin())]);
    } else {
        size_t begin = text_.size() - std::min(text_.size(), kRematchTokens);
        for (size_t i = begin; i < text_.size(); ++i) match = advance(automaton, match, text_[i]);
    }
    sources_.push_back({&automaton, origin});
    matches_.push_back(match);
    source_ids_.push_back(id);
}

// Every candidate up to the token that came is a trial, whether it was drafted or not.
void Request::update_predictor(Token token) {
    bool is_first = true, is_predicted = false;
    Candidates candidates(
        sources_.data(), static_cast<uint32_t>(sources_.size()), alignment_, text_, settings_.draft.candidates,
        [&](uint32_t s) { return matches_[s]; }, [&](uint32_t s) { return matches_[s].length; });
    candidates.visit([&](const Candidate& candidate) {
        bool hit = candidate.token == token;
        predictor_.learn(candidate.features, hit);
        is_predicted = hit && is_first;
        is_first = false;
        return !hit;
    });
    alignment_.update_hit_rate(is_predicted);
}

// Finds the token among the children of the deepest accepted node. Where one that was certain did not come, nothing of
// the draft was tried.
void Request::follow_draft(Token token) {
    if (left_draft_) return;
    if (num_certain_came_ < certain_.size()) {
        if (certain_[num_certain_came_++] == token) return;
        drafted_.clear();
    }
    for (size_t i = static_cast<size_t>(deepest_accepted_ + 1); i < drafted_.size(); ++i) {
        if (drafted_[i].parent == deepest_accepted_ && drafted_[i].token == token) {
            accepted_[i] = true;
            deepest_accepted_ = static_cast<int32_t>(i);
            return;
        }
    }
    left_draft_ = true;
}

// Descendants of the deepest accepted node are undecided while the text has not left the draft. The weight of an
// outcome is the probability, given the parent's, that it is a rejection.
void Request::update_calibration() {
    undecided_.assign(drafted_.size(), false);
    for (size_t i = 0; i < drafted_.size(); ++i) {
        int32_t parent = drafted_[i].parent;
        undecided_[i] =
            !left_draft_ && !accepted_[i] && (parent == deepest_accepted_ || (parent >= 0 && undecided_[parent]));
        if (undecided_[i]) continue;
        double before = parent < 0 ? 1 : drafted_[parent].survival;
        double weight = std::max(kMinOutcomeWeight, 1 - drafted_[i].survival / before);
        calibration_.learn(drafted_[i].survival, drafted_hit_rate_, accepted_[i], weight);
    }
}

void Request::draft(TreeBuilder& builder, uint32_t limit, std::vector<DraftNode>& nodes, const Token* certain,
                    size_t num_certain) {
    if (generation_ != nullptr) matches_[1] = after_splits(generation_->automaton, matches_[1]);
    Position position{sources_.data(), static_cast<uint32_t>(sources_.size()), matches_.data(), &alignment_,
                      &text_,          text_.empty() ? -1 : text_.back()};
    Alignment alignment = alignment_;
    std::vector<Match> matches;
    if (num_certain > 0) {
        matches = matches_;
        for (size_t i = 0; i < num_certain; ++i) {
            for (size_t s = 0; s < sources_.size(); ++s) {
                matches[s] = advance(*sources_[s].automaton, matches[s], certain[i]);
            }
            alignment.advance(text_, std::exchange(position.newest, certain[i]), certain[i]);
        }
        position.matches = matches.data();
        position.alignment = &alignment;
    }
    builder.build(position, predictor_, settings_.draft, limit, nodes);
    certain_.assign(certain, certain + num_certain);
    num_certain_came_ = 0;
    drafted_ = nodes;
    drafted_hit_rate_ = alignment_.hit_rate();
    accepted_.assign(nodes.size(), false);
    deepest_accepted_ = -1;
    left_draft_ = false;
    Calibration::Curve curve = calibration_.curve(drafted_hit_rate_);
    for (DraftNode& node : nodes) {
        node.survival = Calibration::correct(node.survival, curve);
        // Rounding must not lift it above its parent's.
        if (node.parent >= 0) node.survival = std::min(node.survival, nodes[node.parent].survival);
    }
}

void Request::prefetch() const {
    const char* begin = reinterpret_cast<const char*>(this);
    for (size_t i = 0; i < sizeof(*this); i += 64) __builtin_prefetch(begin + i);
}

void Request::prefetch_matches() const {
    if (version_ != namespace_->version) return;  // the sources may be gone
    for (size_t s = 0; s < matches_.size(); ++s) sources_[s].automaton->prefetch(matches_[s].state);
    own_.prefetch(own_state_);
    if (!text_.empty()) __builtin_prefetch(&text_.back());
}

size_t Request::bytes() const {
    return sizeof(*this) + own_.bytes() + (text_.capacity() + pending.capacity()) * sizeof(Token) + predictor_.bytes();
}

}  // namespace ngram
