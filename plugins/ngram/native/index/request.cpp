#include "index/request.hpp"

#include <algorithm>

namespace ngram {

namespace {
constexpr size_t kRecall = 64;       // tokens by which a text finds its place in a source that is new to it
constexpr double kLeastNews = 0.05;  // what the outcome of a guess that follows for certain from the one before teaches

// Where a text stands in an automaton that it was just written into, itself left out.
Place place_before(const Automaton& automaton, const Automaton::Extension& extension) {
    if (extension.fresh) return {automaton.link(extension.last), automaton.link_length(extension.last)};
    return {extension.last, automaton.length(extension.last)};
}
}  // namespace

Session::Session(Library& library, Experience& experience, const Settings& settings, const std::string& name_space)
    : library_(library), settings_(settings), shelf_(library.shelf(name_space)), own_(settings.order),
      predictor_(&experience.predictor), calibration_(&experience.calibration) {}

void Session::enter(Token token) {
    follow_sources();
    trace_.move(text_, text_.empty() ? 0 : text_.back(), token);
    text_.push_back(token);
    auto own = own_.extend(own_last_, token, static_cast<uint32_t>(text_.size() - 1));
    own_last_ = own.last;
    places_[0] = place_before(own_, own);
    if (settings_.limits.shape == Shape::kLearned) trace_.consider(own.seen, places_[0].length);
    for (size_t s = shared_ != nullptr ? 2 : 1; s < sources_.size(); ++s) {
        places_[s] = advance(*sources_[s].automaton, places_[s], token);
    }
    if (shared_ == nullptr) return;
    auto shared = shared_->automaton.extend(shared_last_, token, kNone);
    shared_last_ = shared.last;
    places_[1] = place_before(shared_->automaton, shared);
    library_.count(*shared_);
}

void Session::append(Token token) {
    follow_sources();
    learn(token);
    enter(token);
}

// The only source that others write into is the generation that all write into.
void Session::follow_sources() {
    list_sources();
    if (shared_ != nullptr) places_[1] = found_again(shared_->automaton, places_[1]);
}

// Finds this text's place in the sources that are new.
void Session::list_sources() {
    if (version_ == shelf_->version) return;
    std::vector<uint64_t> before;
    before.swap(followed_);
    sources_.clear();
    places_.swap(old_places_);
    places_.clear();
    add_source(own_, Kind::kOwn, kOwnId, before);
    if (settings_.shared) {
        shared_ = &library_.current(*shelf_);
        if (shared_id_ != shared_->id) shared_last_ = kRoot;
        shared_id_ = shared_->id;
        for (const Generation* g : shelf_->generations) add_source(g->automaton, Kind::kShared, g->id, before);
    }
    for (const auto& [name, c] : library_.corpora()) add_source(c.corpus->automaton(), Kind::kCorpus, c.id, before);
    version_ = shelf_->version;
}

void Session::add_source(const Automaton& automaton, Kind kind, uint64_t id, const std::vector<uint64_t>& before) {
    if (sources_.size() == kMostSources) return;
    Place place;
    auto known = std::find(before.begin(), before.end(), id);
    if (known != before.end()) {
        place = found_again(automaton, old_places_[static_cast<size_t>(known - before.begin())]);
    } else {
        size_t begin = text_.size() - std::min(text_.size(), kRecall);
        for (size_t i = begin; i < text_.size(); ++i) place = advance(automaton, place, text_[i]);
    }
    sources_.push_back({&automaton, kind});
    places_.push_back(place);
    followed_.push_back(id);
}

// Every candidate up to the token that came is a trial, drafted or not.
void Session::learn(Token token) {
    bool is_first = true, predicted = false;
    Candidates candidates(
        sources_.data(), static_cast<uint32_t>(sources_.size()), trace_, text_, settings_.limits.window,
        [&](uint32_t s) { return places_[s]; }, [&](uint32_t s) { return places_[s].length; });
    candidates.visit([&](const Candidate& candidate) {
        bool hit = candidate.token == token;
        predictor_.learn(candidate.evidence, hit);
        predicted = hit && is_first;
        is_first = false;
        return !hit;
    });
    trace_.get_used_to(predicted);
    judge(token);
}

// Follows the last draft along what really came.
void Session::judge(Token token) {
    if (off_draft_) return;
    for (size_t i = static_cast<size_t>(true_node_ + 1); i < proposed_.size(); ++i) {
        if (proposed_[i].parent == true_node_ && proposed_[i].token == token) {
            came_true_[i] = true;
            true_node_ = static_cast<int32_t>(i);
            return;
        }
    }
    off_draft_ = true;
}

// Nodes beyond the last true one are open while the text has not left the draft.
void Session::settle() {
    open_.assign(proposed_.size(), false);
    for (size_t i = 0; i < proposed_.size(); ++i) {
        int32_t parent = proposed_[i].parent;
        open_[i] = !off_draft_ && !came_true_[i] && (parent == true_node_ || (parent >= 0 && open_[parent]));
        if (open_[i]) continue;
        double before = parent < 0 ? 1 : proposed_[parent].survival;
        double news = std::max(kLeastNews, 1 - proposed_[i].survival / before);
        calibration_.learn(proposed_[i].survival, proposed_habit_, came_true_[i], news);
    }
}

void Session::draft(TreeGrower& grower, uint32_t limit, std::vector<DraftNode>& nodes) {
    if (shared_ != nullptr) places_[1] = found_again(shared_->automaton, places_[1]);
    grower.grow({sources_.data(), static_cast<uint32_t>(sources_.size()), places_.data(), &trace_, &text_}, predictor_,
                settings_.limits, limit, nodes);
    proposed_ = nodes;
    proposed_habit_ = trace_.habit();
    came_true_.assign(nodes.size(), false);
    true_node_ = -1;
    off_draft_ = false;
    Calibration::Curve curve = calibration_.curve(proposed_habit_);
    for (DraftNode& node : nodes) {
        node.survival = Calibration::correct(node.survival, curve);
        // rounding must not lift it above its parent's
        if (node.parent >= 0) node.survival = std::min(node.survival, nodes[node.parent].survival);
    }
}

void Session::prefetch() const {
    const char* begin = reinterpret_cast<const char*>(this);
    for (size_t i = 0; i < sizeof(*this); i += 64) __builtin_prefetch(begin + i);
}

void Session::prefetch_places() const {
    if (version_ != shelf_->version) return;  // the sources may be gone
    for (size_t s = 0; s < places_.size(); ++s) sources_[s].automaton->prefetch(places_[s].state);
    own_.prefetch(own_last_);
    if (!text_.empty()) __builtin_prefetch(&text_.back());
}

size_t Session::bytes() const {
    return sizeof(*this) + own_.bytes() + (text_.capacity() + backlog.capacity()) * sizeof(Token) + predictor_.bytes();
}

}  // namespace ngram
