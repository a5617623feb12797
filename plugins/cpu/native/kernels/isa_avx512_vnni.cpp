#include "runtime/isa.hpp"

#include <immintrin.h>

// avx512 with other code for linear maps alone: AVX512_VNNI multiplies quantised inputs. The bits are those of avx512.
namespace specserve::avx512_vnni {

#include "kernels/vec_avx512-inl.hpp"
#include "kernels/int_vec_avx512-inl.hpp"
#include "kernels/code_vec_avx512-inl.hpp"
#include "kernels/linear_maps-inl.hpp"

Kernels kernels() { return with_linear_maps(avx512::kernels(), "avx512_vnni"); }

}  // namespace specserve::avx512_vnni
