#include "isa.hpp"

#include <immintrin.h>
namespace specserve::avx512 {

#include "lanes_avx512.hpp"
#include "elementary.hpp"
#include "gemm.hpp"
#include "rowwise.hpp"
#include "attend.hpp"
#include "attend_by_slot.hpp"
#include "attend_in_panels.hpp"
#include "sample.hpp"
#include "table.hpp"

Kernels kernels() { return {"avx512", table<Bf16>(), table<float>(), sampling()}; }

}  // namespace specserve::avx512
