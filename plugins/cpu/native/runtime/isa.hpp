// Run-time dispatch: the instruction sets that this build contains and this processor supports.
#pragma once

#include <string>
#include <vector>

#include "kernels/kernel_table.hpp"

namespace specserve {

// CMake defines which of these are compiled: an old compiler does not know all flags.
namespace portable {
Kernels kernels();
}
namespace avx2 {
Kernels kernels();
}
namespace avx2_vnni {
Kernels kernels();
}
namespace avx512 {
Kernels kernels();
}
namespace avx512_vnni {
Kernels kernels();
}
namespace avx512_bf16 {
Kernels kernels();
}
namespace amx {
Kernels kernels();
}
namespace neon {
Kernels kernels();
}
namespace neon_dot {
Kernels kernels();
}
namespace neon_i8mm {
Kernels kernels();
}
namespace neon_bf16 {
Kernels kernels();
}
namespace amx_emulated {  // test builds only: AMX tiles in software
Kernels kernels();
}

// Names of the supported instruction sets, the fastest first; the last is always "portable".
std::vector<std::string> instruction_sets();

// Throws std::invalid_argument if the instruction set is not supported.
Kernels kernels_for(const std::string& name);

}  // namespace specserve
