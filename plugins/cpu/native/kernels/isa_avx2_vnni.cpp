#include "runtime/isa.hpp"

#include <immintrin.h>

// avx2 with other code for linear maps alone: AVX-VNNI multiplies quantised inputs. The bits are those of avx2.
namespace specserve::avx2_vnni {

#include "kernels/vec_avx2-inl.hpp"
#include "kernels/int_vec_avx2-inl.hpp"
#include "kernels/code_vec_avx2-inl.hpp"
#include "kernels/linear_maps-inl.hpp"

Kernels kernels() { return with_linear_maps(avx2::kernels(), "avx2_vnni"); }

}  // namespace specserve::avx2_vnni
