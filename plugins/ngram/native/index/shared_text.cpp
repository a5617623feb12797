#include "index/shared_text.hpp"

#include <algorithm>
#include <utility>

namespace ngram {

namespace {
constexpr uint32_t kPiecesPerToken = 8;  // a token brings fewer
constexpr uint64_t kLeastCharge = 64;    // tokens that a generation costs however little it holds
}  // namespace

void Corpus::add(const Token* tokens, size_t count) {
    StateId last = kRoot;
    for (size_t i = 0; i < count; ++i) last = automaton_.extend(last, tokens[i], kNone).last;
    num_tokens_ += count;
}

Library::Library(Order order, uint64_t capacity, uint32_t generations)
    : order_(order), capacity_(capacity), per_generation_(std::max<uint64_t>(1, capacity / generations)) {}

std::shared_ptr<Shelf> Library::shelf(const std::string& name_space) {
    auto& shelf = shelves_[name_space];
    if (shelf == nullptr) {
        shelf = std::make_shared<Shelf>();
        shelf->name_space = name_space;
    }
    return shelf;
}

void Library::leave(std::shared_ptr<Shelf> shelf) {
    std::string name_space = shelf->name_space;
    shelf.reset();
    forget_if_unused(name_space);
}

void Library::forget_if_unused(const std::string& name_space) {
    auto kept = shelves_.find(name_space);
    if (kept->second.use_count() == 1 && kept->second->generations.empty()) shelves_.erase(kept);
}

Generation& Library::current(Shelf& shelf) {
    if (!shelf.is_open) {
        generations_.push_back(Generation{++num_begun_, &shelf, Automaton(order_)});
        shelf.generations.insert(shelf.generations.begin(), &generations_.back());
        shelf.is_open = true;
        ++shelf.version;
        charged_ += kLeastCharge;
        fit();
    }
    return *shelf.generations.front();
}

void Library::count(Generation& generation) {
    ++generation.num_tokens;
    ++num_tokens_;
    if (generation.num_tokens > kLeastCharge) ++charged_;
    if (generation.num_tokens >= per_generation_) {
        generation.shelf->is_open = false;
        ++generation.shelf->version;
    }
    fit();
    tidy();
}

// Drops the oldest generations that are too many; the newest always stays.
void Library::fit() {
    while (charged_ > capacity_ && generations_.size() > 1) {
        Generation& oldest = generations_.front();
        Shelf& shelf = *oldest.shelf;
        num_tokens_ -= oldest.num_tokens;
        charged_ -= std::max(oldest.num_tokens, kLeastCharge);
        if (shelf.generations.front() == &oldest) shelf.is_open = false;
        shelf.generations.erase(std::find(shelf.generations.begin(), shelf.generations.end(), &oldest));
        ++shelf.version;
        ++num_evicted_;
        dropped_.splice(dropped_.end(), generations_, generations_.begin());
        forget_if_unused(shelf.name_space);
    }
}

// Frees a little of what was dropped.
void Library::tidy() {
    for (uint32_t i = 0; i < kPiecesPerToken && !dropped_.empty(); ++i) {
        if (!dropped_.front().automaton.release()) dropped_.pop_front();
    }
}

std::shared_ptr<const Corpus> Library::add_corpus(const std::string& name, std::shared_ptr<const Corpus> corpus) {
    ShelvedCorpus& shelved = corpora_[name];
    shelved.id = ++num_begun_;
    shelved.corpus.swap(corpus);
    tell_all();
    return corpus;
}

std::shared_ptr<const Corpus> Library::remove_corpus(const std::string& name) {
    auto found = corpora_.find(name);
    if (found == corpora_.end()) return nullptr;
    std::shared_ptr<const Corpus> removed = std::move(found->second.corpus);
    corpora_.erase(found);
    tell_all();
    return removed;
}

void Library::tell_all() {
    for (auto& [name, shelf] : shelves_) ++shelf->version;
}

size_t Library::bytes() const {
    size_t bytes = 0;
    for (const auto& [name, shelf] : shelves_) bytes += sizeof(Shelf) + 2 * name.capacity();
    for (const auto& g : generations_) bytes += g.automaton.bytes();
    for (const auto& g : dropped_) bytes += g.automaton.bytes();
    return bytes;
}

}  // namespace ngram
