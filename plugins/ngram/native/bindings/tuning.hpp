// The constants and priors that the reference implementation in tests/ngram/twin shares with the native code.
#pragma once

#include <nanobind/nanobind.h>

namespace ngram {

// Adds the classes Origin, Relation and Tuning to the module.
void bind_tuning(nanobind::module_& m);

}  // namespace ngram
