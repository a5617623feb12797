#include "runtime/isa.hpp"

#include <immintrin.h>

// avx512 with other code for linear maps alone: AVX512_VNNI multiplies quantised inputs. The bits are those of avx512.
namespace specserve::avx512_vnni {

#include "kernels/vec_avx512-inl.hpp"
#include "kernels/int_vec_avx512-inl.hpp"
#include "kernels/linear_maps-inl.hpp"

Kernels kernels() {
    Kernels kernels = avx512::kernels();
    kernels.name = "avx512_vnni";
    static_cast<LinearTable<Bf16>&>(kernels.bf16) = linear_table<Bf16>();
    static_cast<LinearTable<float>&>(kernels.f32) = linear_table<float>();
    return kernels;
}

}  // namespace specserve::avx512_vnni
