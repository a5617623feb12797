#include "runtime/isa.hpp"

namespace specserve::portable {

#include "kernels/vec_portable-inl.hpp"
#include "kernels/int_vec_portable-inl.hpp"
#include "kernels/code_vec_portable-inl.hpp"
#include "kernels/all-inl.hpp"

Kernels kernels() { return {"portable", kernel_table<Bf16>(), kernel_table<float>(), sampling_table()}; }

}  // namespace specserve::portable
