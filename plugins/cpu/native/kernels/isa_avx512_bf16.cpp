#include "runtime/isa.hpp"

#include <immintrin.h>

namespace specserve::avx512_bf16 {

#include "kernels/vec_avx512-inl.hpp"
#include "kernels/int_vec_avx512-inl.hpp"
#include "kernels/code_vec_avx512-inl.hpp"
#include "kernels/all-inl.hpp"

Kernels kernels() { return {"avx512_bf16", kernel_table<Bf16>(), kernel_table<float>(), sampling_table()}; }

}  // namespace specserve::avx512_bf16
