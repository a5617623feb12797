#include "runtime/isa.hpp"

#include <arm_neon.h>

#define SPECSERVE_ROW_PAIRS
namespace specserve::neon_bf16 {

#include "kernels/vec_neon-inl.hpp"
#include "kernels/dot_vec_neon-inl.hpp"
#include "kernels/int_vec_neon-inl.hpp"
#include "kernels/code_vec_neon-inl.hpp"
#include "kernels/all-inl.hpp"

Kernels kernels() { return {"neon_bf16", kernel_table<Bf16>(), kernel_table<float>(), sampling_table()}; }

}  // namespace specserve::neon_bf16
