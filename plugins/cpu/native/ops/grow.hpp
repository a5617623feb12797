// Buffers that are kept from call to call and only ever become larger.
#pragma once

#include <cstddef>
#include <vector>

namespace specserve {

// Room for `rows` rows of `size` numbers.
template <typename T, typename Rows, typename Size>
void grow(std::vector<T>& buffer, Rows rows, Size size) {
    size_t wanted = static_cast<size_t>(rows) * static_cast<size_t>(size);
    if (buffer.size() < wanted) buffer.resize(wanted);
}

}  // namespace specserve
