#include "runtime/isa.hpp"

#include <immintrin.h>

#define SPECSERVE_TILES
namespace specserve::amx_emulated {

#include "kernels/vec_avx2-inl.hpp"
#include "kernels/int_vec_avx2-inl.hpp"
#include "kernels/code_vec_avx2-inl.hpp"
#include "kernels/tiles_emulated-inl.hpp"
#include "kernels/all-inl.hpp"

Kernels kernels() { return {"amx_emulated", kernel_table<Bf16>(), kernel_table<float>(), sampling_table()}; }

}  // namespace specserve::amx_emulated
