#include "isa.hpp"

#include <stdexcept>

namespace specserve {

namespace {

struct Set {
    const char* name;
    bool runs;
    Kernels (*kernels)();
};

std::vector<Set> sets() {
    std::vector<Set> all;
#ifdef SPECSERVE_X86
    bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                __builtin_cpu_supports("avx512dq");
    all.push_back({"avx512_bf16", wide && __builtin_cpu_supports("avx512bf16"), avx512_bf16::kernels});
    all.push_back({"avx512", wide, avx512::kernels});
#endif
    all.push_back({"portable", true, portable::kernels});
    return all;
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
    return kSegment * wide * 4 + static_cast<size_t>(count) * kSegment * 8;
}

}  // namespace specserve
