#include "index/shared_text.hpp"

#include <algorithm>
#include <utility>

namespace ngram {

namespace {
constexpr uint32_t kChunksFreedPerToken = 8;  // more than a token allocates
}

void Corpus::add(const Token* tokens, size_t count) {
    StateId last = kRoot;
    for (size_t i = 0; i < count; ++i) last = automaton_.extend(last, tokens[i], kNone).state;
    num_tokens_ += count;
}

SharedText::SharedText(Ranking ranking, uint64_t capacity, uint32_t generations)
    : ranking_(ranking), capacity_(capacity), per_generation_(std::max<uint64_t>(1, capacity / generations)) {}

std::shared_ptr<Namespace> SharedText::acquire(const std::string& name) {
    auto& name_space = namespaces_[name];
    if (name_space == nullptr) {
        name_space = std::make_shared<Namespace>();
        name_space->name = name;
    }
    return name_space;
}

void SharedText::release(std::shared_ptr<Namespace> name_space) {
    std::string name = name_space->name;
    name_space.reset();
    erase_if_unused(name);
}

void SharedText::erase_if_unused(const std::string& name) {
    auto found = namespaces_.find(name);
    if (found->second.use_count() == 1 && found->second->generations.empty()) namespaces_.erase(found);
}

Generation& SharedText::current(Namespace& name_space) {
    if (!name_space.is_open) {
        generations_.push_back(Generation{++num_ids_, &name_space, SuffixAutomaton(ranking_)});
        name_space.generations.insert(name_space.generations.begin(), &generations_.back());
        name_space.is_open = true;
        ++name_space.version;
        charged_ += kMinCharge;
        evict();
    }
    return *name_space.generations.front();
}

void SharedText::count_token(Generation& generation) {
    ++generation.num_tokens;
    ++num_tokens_;
    if (generation.num_tokens > kMinCharge) ++charged_;
    if (generation.num_tokens >= per_generation_) {
        generation.owner->is_open = false;
        ++generation.owner->version;
    }
    evict();
    free_evicted();
}

// The newest generation stays, even if it alone exceeds the capacity.
void SharedText::evict() {
    while (charged_ > capacity_ && generations_.size() > 1) {
        Generation& oldest = generations_.front();
        Namespace& owner = *oldest.owner;
        num_tokens_ -= oldest.num_tokens;
        charged_ -= std::max(oldest.num_tokens, kMinCharge);
        if (owner.generations.front() == &oldest) owner.is_open = false;
        owner.generations.erase(std::find(owner.generations.begin(), owner.generations.end(), &oldest));
        ++owner.version;
        ++num_evicted_;
        evicted_.splice(evicted_.end(), generations_, generations_.begin());
        erase_if_unused(owner.name);
    }
}

void SharedText::free_evicted() {
    for (uint32_t i = 0; i < kChunksFreedPerToken && !evicted_.empty(); ++i) {
        if (!evicted_.front().automaton.release_chunk()) evicted_.pop_front();
    }
}

std::shared_ptr<const Corpus> SharedText::add_corpus(const std::string& name, std::shared_ptr<const Corpus> corpus) {
    CorpusEntry& entry = corpora_[name];
    entry.id = ++num_ids_;
    entry.corpus.swap(corpus);
    bump_versions();
    return corpus;
}

std::shared_ptr<const Corpus> SharedText::remove_corpus(const std::string& name) {
    auto found = corpora_.find(name);
    if (found == corpora_.end()) return nullptr;
    std::shared_ptr<const Corpus> removed = std::move(found->second.corpus);
    corpora_.erase(found);
    bump_versions();
    return removed;
}

void SharedText::bump_versions() {
    for (auto& [name, name_space] : namespaces_) ++name_space->version;
}

size_t SharedText::bytes() const {
    size_t bytes = 0;
    for (const auto& [name, name_space] : namespaces_) bytes += sizeof(Namespace) + 2 * name.capacity();
    for (const auto& g : generations_) bytes += g.automaton.bytes();
    for (const auto& g : evicted_) bytes += g.automaton.bytes();
    return bytes;
}

}  // namespace ngram
