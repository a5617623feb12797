// What the processor offers and the system lets this process use.
#pragma once

namespace specserve {

enum class Feature { avx2, avx512, avx512_bf16, amx };

// Asks the system for the use of AMX's tiles when the processor has them: Linux gives them only to who asks.
bool has(Feature feature);

}  // namespace specserve
