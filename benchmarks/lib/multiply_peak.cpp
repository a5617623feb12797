// How many multiply-accumulates a core does per second at its best: ten independent chains of one instruction.
// Usage: multiply_peak INSTRUCTION
#include <chrono>
#include <cstdio>
#include <cstring>

namespace {

constexpr long kSteps = 20'000'000;
constexpr int kChains = 10, kRounds = 5;

#if defined(__x86_64__)
#define CHAIN(op, r, n) op " %%" r "14, %%" r "15, %%" r #n "\n"
#define LOOP(op, r)                                                                                                    \
    asm volatile("mov %0, %%rcx\n1:\n" CHAIN(op, r, 0) CHAIN(op, r, 1) CHAIN(op, r, 2) CHAIN(op, r, 3) CHAIN(op, r, 4) \
                     CHAIN(op, r, 5) CHAIN(op, r, 6) CHAIN(op, r, 7) CHAIN(op, r, 8)                                   \
                         CHAIN(op, r, 9) "dec %%rcx\njnz 1b\n" ::"r"(kSteps)                                           \
                 : "rcx", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm14",     \
                   "xmm15")
#elif defined(__aarch64__)
#define CHAIN(op, n) op " v" #n ".4s, v14.4s, v15.4s\n"
#define LOOP(op)                                                                                                    \
    asm volatile("mov x9, %0\n1:\n" CHAIN(op, 0) CHAIN(op, 1) CHAIN(op, 2) CHAIN(op, 3) CHAIN(op, 4) CHAIN(op, 5)   \
                     CHAIN(op, 6) CHAIN(op, 7) CHAIN(op, 8) CHAIN(op, 9) "subs x9, x9, #1\nb.ne 1b\n" ::"r"(kSteps) \
                 : "x9", "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v14", "v15")
#endif

// Multiply-accumulates of one instruction; 0: it is not known here.
int run(const char* instruction) {
#if defined(__x86_64__)
    if (!std::strcmp(instruction, "fma256")) {
        LOOP("vfmadd231ps", "ymm");
        return 8;
    }
    if (!std::strcmp(instruction, "fma512")) {
        LOOP("vfmadd231ps", "zmm");
        return 16;
    }
    if (!std::strcmp(instruction, "bf16_512")) {
        LOOP("vdpbf16ps", "zmm");
        return 32;
    }
#elif defined(__aarch64__)
    if (!std::strcmp(instruction, "fma128")) {
        LOOP("fmla");
        return 4;
    }
#endif
    return 0;
}

}  // namespace

int main(int count, char** arguments) {
    double best = 0;
    for (int round = 0; count == 2 && round < kRounds; ++round) {
        auto began = std::chrono::steady_clock::now();
        double products = static_cast<double>(run(arguments[1])) * kChains * kSteps;
        double rate = products / std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
        if (rate > best) best = rate;
    }
    std::printf("%.6g\n", best);
    return best > 0 ? 0 : 1;
}
