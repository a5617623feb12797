#include "runtime/isa.hpp"

#include <arm_neon.h>

namespace specserve::neon {

#include "kernels/vec_neon-inl.hpp"
#include "kernels/dot_vec_neon-inl.hpp"
#include "kernels/int_vec_neon-inl.hpp"
#include "kernels/code_vec_neon-inl.hpp"
#include "kernels/all-inl.hpp"

Kernels kernels() { return {"neon", kernel_table<Bf16>(), kernel_table<float>(), sampling_table()}; }

}  // namespace specserve::neon
