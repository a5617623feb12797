// The linear maps of one instruction set. Included inside its namespace, after its vec files; after a file of tiles too
// if SPECSERVE_TILES is defined.

#include "kernels/math-inl.hpp"
#include "kernels/gemm-inl.hpp"
#ifdef SPECSERVE_TILES
#include "kernels/tile_job-inl.hpp"
#include "kernels/gemm_amx-inl.hpp"
#endif
#include "kernels/linear_int8-inl.hpp"
#include "kernels/quantized_inputs-inl.hpp"
#include "kernels/coded-inl.hpp"
#include "kernels/linear_coded-inl.hpp"
#include "kernels/linear-inl.hpp"

template <typename S>
static LinearTable<S> linear_table() {
    return {linear<S>, linear_add<S>, linear_swiglu<S>, linear_logits<S>, quantize_inputs<S>, quantize_blocks<S>};
}

// The kernels of another instruction set, with the linear maps of this one.
INLINE Kernels with_linear_maps(Kernels kernels, const char* name) {
    kernels.name = name;
    static_cast<LinearTable<Bf16>&>(kernels.bf16) = linear_table<Bf16>();
    static_cast<LinearTable<float>&>(kernels.f32) = linear_table<float>();
    return kernels;
}
