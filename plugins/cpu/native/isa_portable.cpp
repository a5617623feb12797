#include "isa.hpp"

namespace specserve::portable {

#include "lanes_portable.hpp"
#include "elementary.hpp"
#include "gemm.hpp"
#include "rowwise.hpp"
#include "attend.hpp"
#include "attend_by_slot.hpp"
#include "attend_in_panels.hpp"
#include "sample.hpp"
#include "table.hpp"

Kernels kernels() { return {"portable", table<Bf16>(), table<float>(), sampling()}; }

}  // namespace specserve::portable
