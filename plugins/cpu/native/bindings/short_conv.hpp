// A gated short convolution whose weights Python owns.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/attention.hpp"
#include "bindings/bind.hpp"

namespace specserve {

// slots: [T], and those of the tokens before each row: [T, reach], of which only those are read that there are.
inline std::vector<int64_t> checked_preceding(const Array& before, const Array& exists, int64_t rows, int reach,
                                              int64_t num_slots) {
    const int64_t* slots = checked_data<int64_t>(before, "before", {rows, reach});
    const bool* is_there = checked_data<bool>(exists, "exists", {rows, reach});
    check_slots(slots, rows * reach, num_slots);
    std::vector<int64_t> found(slots, slots + rows * reach);
    for (size_t i = 0; i < found.size(); ++i)
        if (!is_there[i]) found[i] = kNoSlot;
    return found;
}

template <typename S>
class PyShortConv {
   public:
    // weight: [taps, channels], the last for the token itself; bias: [channels].
    PyShortConv(std::shared_ptr<Machine> machine, Array weight, std::optional<Array> bias)
        : machine_(std::move(machine)), weight_(std::move(weight)), bias_(std::move(bias)) {
        conv_.weight = checked_data<float>(weight_, "weight", {kAny, kAny});
        if (!weight_.size())
            throw std::invalid_argument("weight must have at least a tap and a channel; got " + shape_string(weight_) +
                                        ".");
        conv_.reach = static_cast<int>(weight_.shape(0)) - 1;
        conv_.size = static_cast<int>(weight_.shape(1));
        conv_.bias = bias_ ? checked_data<float>(*bias_, "bias", {conv_.size}) : nullptr;
    }

    // rows: [T, 3 channels], B, C and x; out: [T, channels]. The tokens before a row that are among the rows come
    // before it.
    void mix(const Array& rows, const Array& kept, const Array& slots, const Array& before, const Array& exists,
             const Array& out) const {
        const S* inputs = checked_data<S>(rows, "rows", {kAny, 3 * conv_.size}, 1);
        int64_t count = static_cast<int64_t>(rows.shape(0));
        ShortConv<S> conv = over(kept);
        int64_t num_slots = static_cast<int64_t>(kept.shape(0));
        const int64_t* own = checked_data<int64_t>(slots, "slots", {count});
        check_row_slots(own, count, num_slots);
        std::vector<int64_t> found = checked_preceding(before, exists, count, conv.reach, num_slots);
        S* outputs = checked_data<S>(out, "out", {count, conv.size});
        nb::gil_scoped_release no_gil;
        if (count == 0) return;
        int num_rows = static_cast<int>(count);
        parallel_for_ranges<S>(*machine_, ceil_div(conv.size, kLanes), [&](int begin, int end) {
            ChannelRange channels{begin * kLanes, std::min(end * kLanes, conv.size)};
            kernel_table<S>(machine_->kernels)
                .short_conv(conv, {inputs, rows.stride(0), num_rows}, {own, found.data(), conv.reach}, channels,
                            {outputs, conv.size, num_rows});
        });
    }

    // kept: [slots, channels], the layer's part of the cache.
    ShortConv<S> over(const Array& kept) const {
        ShortConv<S> conv = conv_;
        conv.kept = checked_data<S>(kept, "kept", {kAny, conv.size});
        return conv;
    }
    // Where another attention backend owns the cache.
    const ShortConv<S>& without_cache() const { return conv_; }
    int size() const { return conv_.size; }

   private:
    std::shared_ptr<Machine> machine_;
    Array weight_;
    std::optional<Array> bias_;
    ShortConv<S> conv_{};
};

}  // namespace specserve
