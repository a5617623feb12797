#include "isa.hpp"

#include <immintrin.h>
namespace specserve::avx2 {

#include "lanes_avx2.hpp"
#include "elementary.hpp"
#include "gemm.hpp"
#include "rowwise.hpp"
#include "attend.hpp"
#include "attend_by_slot.hpp"
#include "attend_in_panels.hpp"
#include "sample.hpp"
#include "table.hpp"

Kernels kernels() { return {"avx2", table<Bf16>(), table<float>(), sampling()}; }

}  // namespace specserve::avx2
