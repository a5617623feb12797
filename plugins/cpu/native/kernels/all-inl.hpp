// All kernels of one instruction set. Included by isa_*.cpp inside its namespace, after its vec files; after a file of
// tiles too if it defines SPECSERVE_TILES.

#ifndef SPECSERVE_TILES
#include "kernels/no_job-inl.hpp"
#endif
#include "kernels/linear_maps-inl.hpp"
#include "kernels/elementwise-inl.hpp"
#include "kernels/experts-inl.hpp"
#include "kernels/rms_norm-inl.hpp"
#include "kernels/rope-inl.hpp"
#include "kernels/short_conv-inl.hpp"
#include "kernels/kv_elements-inl.hpp"
#include "kernels/attention-inl.hpp"
#include "kernels/attention_slots-inl.hpp"
#include "kernels/attention_panels-inl.hpp"
#ifdef SPECSERVE_TILES
#include "kernels/attention_panels_amx-inl.hpp"
#endif
#include "kernels/gated_delta-inl.hpp"
#include "kernels/gumbel-inl.hpp"
#include "kernels/argmax-inl.hpp"
#include "kernels/draft_scores-inl.hpp"
#include "kernels/softmax-inl.hpp"
#include "kernels/select-inl.hpp"
#include "kernels/table-inl.hpp"
