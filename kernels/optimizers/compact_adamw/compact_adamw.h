#ifndef GEMINID_KERNELS_OPTIMIZERS_COMPACT_ADAMW_COMPACT_ADAMW_H_
#define GEMINID_KERNELS_OPTIMIZERS_COMPACT_ADAMW_COMPACT_ADAMW_H_

#include <cstddef>
#include <cstdint>

#include "kernels/numeric/quantise/block_quantise_rule.h"
#include "kernels/optimizers/adamw/adamw.h"
#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"

// AdamW (kernels/optimizers/adamw: same formulas, options, arithmetic and NaN) whose moments are
// kept in one or two bytes each instead of four. Opt-in, because it is another optimizer: the
// moments are rounded after every step. Bytes per parameter of state: 6.03 with EightBitMoments, 8
// with BFloat16Moments, against 12.
namespace geminid::kernels {

// Blocks of kQuantiseBlock elements, see kernels/numeric/quantise: m by the signed map; the root of
// v by the unsigned one, for which the root has half of v's decades, and needs no second root to be
// computed. All zero is the state before the first step.
struct EightBitMoments {
  uint8_t* exp_avg;              // m, `count` codes
  float* exp_avg_scale;          // QuantiseScaleCount(count)
  uint8_t* exp_avg_sq_root;      // sqrt(v), `count` codes
  float* exp_avg_sq_root_scale;  // QuantiseScaleCount(count)
};

// Rounded up or down at random, in proportion, so that the mean is exact: to nearest, v would stand
// still when a step changes it by less than 2^-9, as it does with beta2 = 0.999. The randomness is
// a hash of the step's number and the element's index, so the bits are the same however often the
// step is computed and however it is cut.
struct BFloat16Moments {
  BFloat16* exp_avg;     // m
  BFloat16* exp_avg_sq;  // v
};

struct SplitWeights {  // kernels/numeric/split_master
  BFloat16* weight;
  int16_t* remainder;
};
struct MasterWeights {
  float* weight;
};

template <class Weights, class Moments>
struct CompactState {
  Weights weights;
  Moments moments;
};

// Computes the new state of `count` parameters from the old one, which is only read. Either every
// array of the new state is that of the old one (in place), or they are disjoint (kOverlap
// otherwise). `first_element` is the absolute index of the first parameter, e.g. in its chunk: a
// multiple of kQuantiseBlock, else kMisaligned. So the bits do not depend on how an array is cut
// into calls, nor on the instruction set or the form. A shorter last block is allowed.
//
// Out of place the stores bypass the cache where the new arrays start cache lines; they are
// globally visible on return. Element alignment suffices; any thread, no allocation, never blocks.
// A non-finite moment makes its whole block of 8-bit moments NaN: check the norm before the step.
// Traffic per parameter with split weights and bf16 gradients: 14 bytes and 18 bytes.
template <class Weights, class Moments, typename Gradient>
Status AdamWCompact(const AdamWOptions& options, uint64_t first_element,
                    const CompactState<Weights, Moments>& old_state, const Gradient* gradient,
                    size_t count, const CompactState<Weights, Moments>& new_state);

// The instances: both moments, with SplitWeights and bf16 or fp32 gradients, or with MasterWeights
// and fp32 gradients.
#define GEMINID_DECLARE_COMPACT_ADAMW(Weights, Moments, Gradient)                             \
  extern template Status AdamWCompact(const AdamWOptions&, uint64_t,                          \
                                      const CompactState<Weights, Moments>&, const Gradient*, \
                                      size_t, const CompactState<Weights, Moments>&)
GEMINID_DECLARE_COMPACT_ADAMW(SplitWeights, EightBitMoments, BFloat16);
GEMINID_DECLARE_COMPACT_ADAMW(SplitWeights, EightBitMoments, float);
GEMINID_DECLARE_COMPACT_ADAMW(MasterWeights, EightBitMoments, float);
GEMINID_DECLARE_COMPACT_ADAMW(SplitWeights, BFloat16Moments, BFloat16);
GEMINID_DECLARE_COMPACT_ADAMW(SplitWeights, BFloat16Moments, float);
GEMINID_DECLARE_COMPACT_ADAMW(MasterWeights, BFloat16Moments, float);
#undef GEMINID_DECLARE_COMPACT_ADAMW

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_COMPACT_ADAMW_COMPACT_ADAMW_H_
