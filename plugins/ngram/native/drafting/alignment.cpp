#include "drafting/alignment.hpp"

namespace ngram {

namespace {
constexpr uint32_t kAhead = 64;      // how far ahead the way back is looked for
constexpr uint32_t kPatience = 48;   // tokens after which a lost text is given up for any match of two tokens
constexpr uint32_t kConvincing = 4;  // length of a match that a lost text is given up for at once
}  // namespace

void Trace::move(const Text& text, Token before, Token token) {
    if (at_ == kNone) return;
    if (token == guess(text, 0)) return follow(at_ + 1, lost_ ? 1 : stretch_ + 1);
    if (lost_ && token == guess(text, 1)) return follow(at_ + lost_ + 1, 1);
    if (lost_ && token == guess(text, 2)) return follow(nearest_ + 1, 2);
    bool just_lost = lost_ == 0;
    ++lost_;
    stretch_ = 0;
    nearest_ = kNone;
    uint32_t stop = std::min(at_ + kAhead + 1, static_cast<uint32_t>(text.size()));
    for (uint32_t i = at_ + 1; i < stop; ++i) {
        if (text[i] != token) continue;
        if (nearest_ == kNone) nearest_ = i;
        if (!just_lost && text[i - 1] == before) return follow(i, 2);
    }
}

void Trace::consider(uint32_t end, uint32_t length) {
    if (end == kNone) return;
    bool better = at_ == kNone || lost_ > kPatience ? length >= 2 : lost_ > 0 && length >= kConvincing;
    if (better) follow(end, length);
}

}  // namespace ngram
