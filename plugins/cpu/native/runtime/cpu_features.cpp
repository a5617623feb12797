#include "runtime/cpu_features.hpp"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(__linux__) && defined(__aarch64__)
#include <sys/auxv.h>
#endif
#if defined(__APPLE__) && defined(__aarch64__)
#include <sys/sysctl.h>
#endif

namespace specserve {

namespace {

#if defined(__linux__) && defined(__x86_64__)
// Bits of CPUID leaf 7 (EDX), CPUID leaf 1 (ECX) and XCR0: Intel SDM, volume 1, chapter 18.
constexpr uint32_t kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kAmxInt8 = 1u << 25, kOsxsave = 1u << 27;
constexpr uint32_t kTileConfig = 1u << 17, kTileData = 1u << 18;
constexpr long kRequestPermission = 0x1023, kTileDataComponent = 18;  // asm/prctl.h: ARCH_REQ_XCOMP_PERM

bool request_amx_permission() {
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & kOsxsave)) return false;
    constexpr uint32_t kAmx = kAmxBf16 | kAmxTile | kAmxInt8;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kAmx) != kAmx) return false;
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & (kTileConfig | kTileData)) != (kTileConfig | kTileData)) return false;
    return syscall(SYS_arch_prctl, kRequestPermission, kTileDataComponent) == 0;
}
#elif defined(__x86_64__)
bool request_amx_permission() { return false; }
#endif

#if defined(__x86_64__)
// CPUID leaf 7.1, EAX. Not all compilers know the feature by name.
bool has_avx_vnni() {
    constexpr uint32_t kAvxVnni = 1u << 4;
    uint32_t a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & kAvxVnni);
}
#endif

#if defined(__aarch64__)
struct ArmFeatures {
    bool dot, i8mm, bf16;
};
#if defined(__linux__)
// Bits of AT_HWCAP and AT_HWCAP2: Linux, Documentation/arch/arm64/elf_hwcaps.rst. Old headers lack some names.
ArmFeatures arm_features() {
    constexpr unsigned long kDot = 1ul << 20, kI8mm = 1ul << 13, kBf16 = 1ul << 14;
    unsigned long second = getauxval(AT_HWCAP2);
    return {(getauxval(AT_HWCAP) & kDot) != 0, (second & kI8mm) != 0, (second & kBf16) != 0};
}
#elif defined(__APPLE__)
bool sysctl_has(const char* name) {
    int has = 0;
    size_t size = sizeof has;
    return sysctlbyname(name, &has, &size, nullptr, 0) == 0 && has;
}
ArmFeatures arm_features() {
    return {sysctl_has("hw.optional.arm.FEAT_DotProd"), sysctl_has("hw.optional.arm.FEAT_I8MM"),
            sysctl_has("hw.optional.arm.FEAT_BF16")};
}
#else
ArmFeatures arm_features() { return {}; }
#endif
#endif

}  // namespace

bool supports([[maybe_unused]] Feature feature) {
#if defined(__x86_64__)
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    bool avx512_vnni = avx512 && __builtin_cpu_supports("avx512vnni");
    bool avx512_bf16 = avx512_vnni && __builtin_cpu_supports("avx512bf16");
    static const bool tiles = request_amx_permission();
    switch (feature) {
        case Feature::avx2: return avx2;
        case Feature::avx2_vnni: return avx2 && has_avx_vnni();
        case Feature::avx512: return avx512;
        case Feature::avx512_vnni: return avx512_vnni;
        case Feature::avx512_bf16: return avx512_bf16;
        case Feature::amx: return avx512_bf16 && tiles;
        default: return false;
    }
#elif defined(__aarch64__)
    static const ArmFeatures has = arm_features();
    switch (feature) {
        case Feature::neon: return true;
        case Feature::neon_dot: return has.dot;
        case Feature::neon_i8mm: return has.dot && has.i8mm;
        case Feature::neon_bf16: return has.dot && has.i8mm && has.bf16;
        default: return false;
    }
#endif
    return false;
}

}  // namespace specserve
