#include "runtime/isa.hpp"

#include <arm_neon.h>

// neon with other code for linear maps alone: SMMLA multiplies quantised inputs, two rows at a time. The bits are those
// of neon.
#define SPECSERVE_ROW_PAIRS
namespace specserve::neon_i8mm {

#include "kernels/vec_neon-inl.hpp"
#include "kernels/dot_vec_neon-inl.hpp"
#include "kernels/int_vec_neon-inl.hpp"
#include "kernels/code_vec_neon-inl.hpp"
#include "kernels/linear_maps-inl.hpp"

Kernels kernels() { return with_linear_maps(neon::kernels(), "neon_i8mm"); }

}  // namespace specserve::neon_i8mm
