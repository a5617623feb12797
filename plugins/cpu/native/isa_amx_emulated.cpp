#include "isa.hpp"

#include <immintrin.h>
namespace specserve::amx_emulated {

#include "lanes_avx2.hpp"
#include "elementary.hpp"
#include "gemm.hpp"
#include "tiles_soft.hpp"
#include "gemm_amx.hpp"
#include "rowwise.hpp"
#include "attend.hpp"
#include "attend_by_slot.hpp"
#include "attend_in_panels.hpp"
#include "pages_amx.hpp"
#include "sample.hpp"
#include "table.hpp"

Kernels kernels() { return {"amx_emulated", table<Bf16>(), table<float>(), sampling()}; }

}  // namespace specserve::amx_emulated
