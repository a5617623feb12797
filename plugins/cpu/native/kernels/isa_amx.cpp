#include "runtime/isa.hpp"

#include <immintrin.h>

#define SPECSERVE_TILES
namespace specserve::amx {

#include "kernels/vec_avx512-inl.hpp"
#include "kernels/int_vec_avx512-inl.hpp"
#include "kernels/code_vec_avx512-inl.hpp"
#include "kernels/tiles_amx-inl.hpp"
#include "kernels/all-inl.hpp"

Kernels kernels() { return {"amx", kernel_table<Bf16>(), kernel_table<float>(), sampling_table()}; }

}  // namespace specserve::amx
