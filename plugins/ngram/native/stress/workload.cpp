#include "stress/workload.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace ngram::stress {

namespace {

void check_draft(const std::vector<DraftNode>& draft, int32_t limit) {
    require(draft.size() <= static_cast<size_t>(limit), "a draft is longer than its limit");
    std::vector<uint32_t> depth;
    for (size_t i = 0; i < draft.size(); ++i) {
        const DraftNode& node = draft[i];
        require(node.parent >= -1 && node.parent < static_cast<int32_t>(i), "a child comes before its parent");
        depth.push_back(node.parent < 0 ? 1 : depth[node.parent] + 1);
        require(depth[i] <= kMaxDepth, "a draft is too deep");
        require(node.survival > 0 && node.survival <= 1, "a survival estimate is no probability");
        require(node.parent < 0 || node.survival <= draft[node.parent].survival, "a child survives its parent");
        for (size_t k = 0; k < i; ++k) {
            require(draft[k].parent != node.parent || draft[k].token != node.token, "a node is drafted twice");
        }
    }
}

}  // namespace

void require(bool condition, const char* message) {
    if (condition) return;
    std::fprintf(stderr, "stress: %s\n", message);
    std::abort();
}

bool are_equal(const Drafts& a, const Drafts& b) {
    auto are_equal_nodes = [](const DraftNode& m, const DraftNode& n) {
        return m.token == n.token && m.parent == n.parent && m.survival == n.survival;
    };
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const auto& m, const auto& n) {
        return std::equal(m.begin(), m.end(), n.begin(), n.end(), are_equal_nodes);
    });
}

uint32_t below(Random& random, uint32_t bound) { return static_cast<uint32_t>(random() % bound); }

Settings make_settings(MatchType match_type, bool shared, double min_survival) {
    return {shared, {match_type, {1, 24, 4, 10}, 2, kMaxDepth, min_survival}};
}

Text make_text(Random& random, size_t length, uint32_t alphabet) {
    Text text;
    while (text.size() < length) {
        if (text.empty() || below(random, 3) == 0) {
            for (uint32_t i = below(random, 12) + 1; i > 0; --i) {
                text.push_back(static_cast<Token>(below(random, alphabet)));
            }
        } else {
            uint32_t from = below(random, static_cast<uint32_t>(text.size()));
            for (uint32_t i = from; i < text.size() && i < from + 40; ++i) {
                text.push_back(below(random, 15) ? text[i] : static_cast<Token>(below(random, alphabet)));
            }
        }
    }
    text.resize(length);
    return text;
}

std::shared_ptr<const Corpus> make_corpus(Random& random, MatchType match_type, uint32_t num_documents) {
    Corpus corpus(ranking_of(match_type));
    for (uint32_t i = 0; i < num_documents; ++i) {
        Text document = make_text(random, below(random, 200), 40);
        corpus.add(document.data(), document.size());
    }
    return std::make_shared<const Corpus>(std::move(corpus));
}

void Batch::start(const std::string& name_space, size_t length, uint32_t alphabet) {
    start(name_space, make_text(random_, length, alphabet));
}

void Batch::start(const std::string& name_space, Text text) {
    size_t prompt = text.size() / 2;
    Handle handle = index_.start(name_space, text.data(), prompt);
    requests_.push_back({handle, std::move(text), prompt});
}

void Batch::step() {
    std::vector<Handle> handles;
    std::vector<int32_t> counts, limits, certain_counts;
    Text tokens, certain;
    for (Running& r : requests_) {
        auto count = static_cast<int32_t>(std::min<size_t>(below(random_, 5), r.text.size() - r.num_sent));
        handles.push_back(r.handle);
        counts.push_back(count);
        limits.push_back(static_cast<int32_t>(below(random_, kMaxLimit + 1)));
        tokens.insert(tokens.end(), r.text.begin() + r.num_sent, r.text.begin() + r.num_sent + count);
        r.num_sent += count;
        auto ahead = static_cast<int32_t>(std::min<size_t>(below(random_, 3), r.text.size() - r.num_sent));
        certain_counts.push_back(ahead);
        certain.insert(certain.end(), r.text.begin() + r.num_sent, r.text.begin() + r.num_sent + ahead);
    }
    index_.step(handles.data(), counts.data(), limits.data(), handles.size(), tokens.data(), drafts_,
                {certain.data(), certain_counts.data()});
    for (size_t i = 0; i < drafts_.size(); ++i) {
        check_draft(drafts_[i], limits[i]);
        num_nodes_ += drafts_[i].size();
    }
    for (size_t i = requests_.size(); i-- > 0;) {
        if (requests_[i].num_sent == requests_[i].text.size()) stop(i);
    }
}

void Batch::stop(size_t i) {
    Running& r = requests_[i];
    size_t count = std::min<size_t>(below(random_, 30), r.text.size() - r.num_sent);
    index_.stop(r.handle, r.text.data() + r.num_sent, count);
    requests_.erase(requests_.begin() + i);
}

void Batch::stop_all() {
    while (!requests_.empty()) stop(requests_.size() - 1);
}

}  // namespace ngram::stress
