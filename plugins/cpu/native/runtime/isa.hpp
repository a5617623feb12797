// Which instruction sets this build holds and this processor runs.
#pragma once

#include <string>
#include <vector>

#include "kernels/kernel_table.hpp"

namespace specserve {

// The build says which of these it compiled; an old compiler has not the flags for all.
namespace portable {
Kernels kernels();
}
namespace avx2 {
Kernels kernels();
}
namespace avx512 {
Kernels kernels();
}
namespace avx512_bf16 {
Kernels kernels();
}
namespace amx {
Kernels kernels();
}
namespace amx_emulated {  // in test builds: amx's arithmetic in memory
Kernels kernels();
}

// Names of all that run here, the fastest first; the last is always "portable".
std::vector<std::string> instruction_sets();

// The kernels of one of them. Throws std::invalid_argument for a name that does not run here.
Kernels kernels_for(const std::string& name);

}  // namespace specserve
