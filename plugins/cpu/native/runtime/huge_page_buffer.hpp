// Memory for weights: uninitialized, aligned to a cache line, in huge pages where the system gives them.
#pragma once

#include <cstddef>
#include <memory>

namespace specserve {

// Memory from an arena of chunks, which neighbouring weights share. The system gets a chunk back with the last buffer
// in it.
class HugePageBuffer {
   public:
    explicit HugePageBuffer(size_t bytes);
    template <typename T>
    T* get() const {
        return static_cast<T*>(memory_.get());
    }

   private:
    std::shared_ptr<void> memory_;
};

}  // namespace specserve
