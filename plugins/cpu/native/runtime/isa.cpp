#include "runtime/isa.hpp"

#include <stdexcept>

#include "runtime/cpu_features.hpp"

namespace specserve {

namespace {

struct Set {
    const char* name;
    bool runs;
    Kernels (*kernels)();
};

std::vector<Set> sets() {
    return {
#ifdef SPECSERVE_AMX
        {"amx", has(Feature::amx), amx::kernels},
#endif
#ifdef SPECSERVE_AVX512_BF16
        {"avx512_bf16", has(Feature::avx512_bf16), avx512_bf16::kernels},
#endif
#ifdef SPECSERVE_AVX512
        {"avx512", has(Feature::avx512), avx512::kernels},
#endif
#ifdef SPECSERVE_AVX2
        {"avx2", has(Feature::avx2), avx2::kernels},
#endif
#ifdef SPECSERVE_AMX_EMULATED
        {"amx_emulated", has(Feature::avx2), amx_emulated::kernels},
#endif
        {"portable", true, portable::kernels},
    };
}

}  // namespace

std::vector<std::string> instruction_sets() {
    std::vector<std::string> names;
    for (const Set& set : sets())
        if (set.runs) names.push_back(set.name);
    return names;
}

Kernels kernels_for(const std::string& name) {
    for (const Set& set : sets())
        if (set.runs && name == set.name) return set.kernels();
    std::string known;
    for (const std::string& each : instruction_sets()) known += (known.empty() ? "" : ", ") + each;
    throw std::invalid_argument("instruction set '" + name + "' does not run here; this processor has: " + known);
}

size_t attend_scratch(int count, int head_dim) {
    size_t wide = static_cast<size_t>(divided_up(head_dim, kLanes)) * kLanes;
    return 2 * kSegment * wide * 4 + static_cast<size_t>(count) * kSegment * 8;
}

}  // namespace specserve
