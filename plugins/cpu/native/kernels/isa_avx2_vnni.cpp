#include "runtime/isa.hpp"

#include <immintrin.h>

// avx2 with other code for linear maps alone: AVX-VNNI multiplies quantised inputs. The bits are those of avx2.
namespace specserve::avx2_vnni {

#include "kernels/vec_avx2-inl.hpp"
#include "kernels/int_vec_avx2-inl.hpp"
#include "kernels/linear_maps-inl.hpp"

Kernels kernels() {
    Kernels kernels = avx2::kernels();
    kernels.name = "avx2_vnni";
    static_cast<LinearTable<Bf16>&>(kernels.bf16) = linear_table<Bf16>();
    static_cast<LinearTable<float>&>(kernels.f32) = linear_table<float>();
    return kernels;
}

}  // namespace specserve::avx2_vnni
