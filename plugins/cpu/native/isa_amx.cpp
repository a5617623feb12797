#include "isa.hpp"

#include <immintrin.h>
namespace specserve::amx {

#include "lanes_avx512.hpp"
#include "elementary.hpp"
#include "gemm.hpp"
#include "tiles_amx.hpp"
#include "gemm_amx.hpp"
#include "rowwise.hpp"
#include "attend.hpp"
#include "attend_by_slot.hpp"
#include "attend_in_panels.hpp"
#include "pages_amx.hpp"
#include "sample.hpp"
#include "table.hpp"

Kernels kernels() { return {"amx", table<Bf16>(), table<float>(), sampling()}; }

}  // namespace specserve::amx
