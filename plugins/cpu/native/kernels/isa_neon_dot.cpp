#include "runtime/isa.hpp"

#include <arm_neon.h>

// neon with other code for linear maps alone: SDOT multiplies quantised inputs. The bits are those of neon.
namespace specserve::neon_dot {

#include "kernels/vec_neon-inl.hpp"
#include "kernels/dot_vec_neon-inl.hpp"
#include "kernels/int_vec_neon-inl.hpp"
#include "kernels/code_vec_neon-inl.hpp"
#include "kernels/linear_maps-inl.hpp"

Kernels kernels() { return with_linear_maps(neon::kernels(), "neon_dot"); }

}  // namespace specserve::neon_dot
