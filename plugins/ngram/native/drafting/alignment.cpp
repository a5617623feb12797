#include "drafting/alignment.hpp"

namespace ngram {

void Alignment::advance(const Text& text, Token before, Token token) {
    if (at_ == kNone) return;
    if (token == prediction(text, 0)) return follow(at_ + 1, diverged_ ? 1 : followed_ + 1);
    if (diverged_ && token == prediction(text, 1)) return follow(at_ + diverged_ + 1, 1);
    if (diverged_ && token == prediction(text, 2)) return follow(nearest_ + 1, 2);
    bool was_diverged = diverged_ > 0;
    ++diverged_;
    followed_ = 0;
    nearest_ = kNone;
    uint32_t stop = std::min(at_ + kSearchWindow + 1, static_cast<uint32_t>(text.size()));
    for (uint32_t i = at_ + 1; i < stop; ++i) {
        if (text[i] != token) continue;
        if (nearest_ == kNone) nearest_ = i;
        if (was_diverged && text[i - 1] == before) return follow(i, 2);
    }
}

void Alignment::realign(uint32_t end, uint32_t length) {
    if (end == kNone) return;
    bool has_no_part = at_ == kNone || diverged_ > kMaxDivergence;
    if (has_no_part ? length >= 2 : diverged_ > 0 && length >= kRealignLength) follow(end, length);
}

}  // namespace ngram
