// What the processor supports and the operating system lets this process use.
#pragma once

namespace specserve {

enum class Feature { avx2, avx2_vnni, avx512, avx512_vnni, avx512_bf16, amx, neon, neon_dot, neon_i8mm, neon_bf16 };

// If the processor has AMX, requests permission for its tile state, as Linux demands.
bool supports(Feature feature);

}  // namespace specserve
