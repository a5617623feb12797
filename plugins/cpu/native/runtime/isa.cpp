#include "runtime/isa.hpp"

#include <stdexcept>

#include "runtime/cpu_features.hpp"

namespace specserve {

namespace {

struct InstructionSet {
    const char* name;
    bool supported;
    Kernels (*kernels)();
};

std::vector<InstructionSet> compiled_sets() {
    return {
#ifdef SPECSERVE_AMX
        {"amx", supports(Feature::amx), amx::kernels},
#endif
#ifdef SPECSERVE_AVX512_BF16
        {"avx512_bf16", supports(Feature::avx512_bf16), avx512_bf16::kernels},
#endif
#ifdef SPECSERVE_AVX512_VNNI
        {"avx512_vnni", supports(Feature::avx512_vnni), avx512_vnni::kernels},
#endif
#ifdef SPECSERVE_AVX512
        {"avx512", supports(Feature::avx512), avx512::kernels},
#endif
#ifdef SPECSERVE_AVX2_VNNI
        {"avx2_vnni", supports(Feature::avx2_vnni), avx2_vnni::kernels},
#endif
#ifdef SPECSERVE_AVX2
        {"avx2", supports(Feature::avx2), avx2::kernels},
#endif
#ifdef SPECSERVE_AMX_EMULATED
        {"amx_emulated", supports(Feature::avx2), amx_emulated::kernels},
#endif
#ifdef SPECSERVE_NEON_BF16
        {"neon_bf16", supports(Feature::neon_bf16), neon_bf16::kernels},
#endif
#ifdef SPECSERVE_NEON_I8MM
        {"neon_i8mm", supports(Feature::neon_i8mm), neon_i8mm::kernels},
#endif
#ifdef SPECSERVE_NEON_DOT
        {"neon_dot", supports(Feature::neon_dot), neon_dot::kernels},
#endif
#ifdef SPECSERVE_NEON
        {"neon", supports(Feature::neon), neon::kernels},
#endif
        {"portable", true, portable::kernels},
    };
}

}  // namespace

std::vector<std::string> instruction_sets() {
    std::vector<std::string> names;
    for (const InstructionSet& set : compiled_sets())
        if (set.supported) names.push_back(set.name);
    return names;
}

Kernels kernels_for(const std::string& name) {
    for (const InstructionSet& set : compiled_sets())
        if (set.supported && name == set.name) return set.kernels();
    std::string known;
    for (const std::string& each : instruction_sets()) known += (known.empty() ? "" : ", ") + each;
    throw std::invalid_argument("instruction set '" + name + "' does not run here; this processor has: " + known);
}

}  // namespace specserve
