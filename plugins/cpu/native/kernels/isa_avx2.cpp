#include "runtime/isa.hpp"

#include <immintrin.h>
namespace specserve::avx2 {

#include "kernels/vec_avx2-inl.hpp"
#include "kernels/math-inl.hpp"
#include "kernels/gemm-inl.hpp"
#include "kernels/rowwise-inl.hpp"
#include "kernels/attention-inl.hpp"
#include "kernels/attention_by_slot-inl.hpp"
#include "kernels/attention_panels-inl.hpp"
#include "kernels/sample_kernels-inl.hpp"
#include "kernels/table-inl.hpp"

Kernels kernels() { return {"avx2", table<Bf16>(), table<float>(), sampling()}; }

}  // namespace specserve::avx2
