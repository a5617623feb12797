// Prints which instruction sets the processor supports, as a list of CMake. The build runs it.
#include <cstdio>

#include "runtime/cpu_features.cpp"  // try_run takes one file

int main() {
    using specserve::Feature;
    constexpr struct {
        const char* name;
        Feature feature;
    } kSets[] = {
        {"avx2", Feature::avx2},
        {"avx2_vnni", Feature::avx2_vnni},
        {"avx512", Feature::avx512},
        {"avx512_vnni", Feature::avx512_vnni},
        {"avx512_bf16", Feature::avx512_bf16},
        {"amx", Feature::amx},
        {"neon", Feature::neon},
        {"neon_dot", Feature::neon_dot},
        {"neon_i8mm", Feature::neon_i8mm},
        {"neon_bf16", Feature::neon_bf16},
    };
    for (const auto& set : kSets)
        if (specserve::supports(set.feature)) std::printf("%s;", set.name);
    std::puts("portable");
}
