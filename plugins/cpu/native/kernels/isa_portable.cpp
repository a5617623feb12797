#include "runtime/isa.hpp"

namespace specserve::portable {

#include "kernels/vec_portable-inl.hpp"
#include "kernels/math-inl.hpp"
#include "kernels/gemm-inl.hpp"
#include "kernels/rowwise-inl.hpp"
#include "kernels/attention-inl.hpp"
#include "kernels/attention_by_slot-inl.hpp"
#include "kernels/attention_panels-inl.hpp"
#include "kernels/sample_kernels-inl.hpp"
#include "kernels/table-inl.hpp"

Kernels kernels() { return {"portable", table<Bf16>(), table<float>(), sampling()}; }

}  // namespace specserve::portable
