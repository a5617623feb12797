// A linear map of a batch by all threads.
#pragma once

#include "runtime/input_quantizer.hpp"
#include "runtime/thread_pool.hpp"

namespace specserve {

// out = linear(x). In up to two phases of a job; the quantizer has room for x.
template <typename S>
void multiply(ThreadPool::Team& team, const KernelTable<S>& table, const Linear<S>& w, InputQuantizer<S>& quantizer,
              Rows<const S> x, Rows<S> out) {
    if (w.prepares_inputs())
        team.parallel_for_ranges(x.count,
                                 [&](int begin, int end) { quantizer.quantize(table, w, x, begin, end - begin); });
    Inputs<S> inputs = quantizer.inputs(w, x);
    team.parallel_for_ranges(w.num_panels(), [&](int begin, int end) { table.linear(w, inputs, {begin, end}, out); });
}

}  // namespace specserve
