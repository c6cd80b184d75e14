#ifndef GEMINID_KERNELS_OPTIMIZERS_COMPACT_ADAMW_COMPACT_STATE_H_
#define GEMINID_KERNELS_OPTIMIZERS_COMPACT_ADAMW_COMPACT_STATE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/optimizers/compact_adamw/compact_adamw.h"

// What the kernel does with any kind of state: go through its arrays, block by block.
namespace geminid::kernels {

// The part of a state that begins `elements` further, a multiple of kQuantiseBlock.
inline SplitWeights At(const SplitWeights& w, size_t elements) {
  return {w.weight + elements, w.remainder + elements};
}
inline MasterWeights At(const MasterWeights& w, size_t elements) { return {w.weight + elements}; }
inline EightBitMoments At(const EightBitMoments& m, size_t elements) {
  const size_t blocks = elements / kQuantiseBlock;
  return {m.exp_avg + elements, m.exp_avg_scale + blocks, m.exp_avg_sq_root + elements,
          m.exp_avg_sq_root_scale + blocks};
}
inline BFloat16Moments At(const BFloat16Moments& m, size_t elements) {
  return {m.exp_avg + elements, m.exp_avg_sq + elements};
}
template <class Weights, class Moments>
CompactState<Weights, Moments> At(const CompactState<Weights, Moments>& s, size_t elements) {
  return {At(s.weights, elements), At(s.moments, elements)};
}

// Calls each(a's array, b's array) for the arrays with one element per parameter, and scale(...)
// for those with one per block.
template <class Each, class Scale>
void ForEachArray(const SplitWeights& a, const SplitWeights& b, Each each, Scale /* scale */) {
  each(a.weight, b.weight);
  each(a.remainder, b.remainder);
}
template <class Each, class Scale>
void ForEachArray(const MasterWeights& a, const MasterWeights& b, Each each, Scale /* scale */) {
  each(a.weight, b.weight);
}
template <class Each, class Scale>
void ForEachArray(const EightBitMoments& a, const EightBitMoments& b, Each each, Scale scale) {
  each(a.exp_avg, b.exp_avg);
  scale(a.exp_avg_scale, b.exp_avg_scale);
  each(a.exp_avg_sq_root, b.exp_avg_sq_root);
  scale(a.exp_avg_sq_root_scale, b.exp_avg_sq_root_scale);
}
template <class Each, class Scale>
void ForEachArray(const BFloat16Moments& a, const BFloat16Moments& b, Each each,
                  Scale /* scale */) {
  each(a.exp_avg, b.exp_avg);
  each(a.exp_avg_sq, b.exp_avg_sq);
}
template <class Weights, class Moments, class Each, class Scale>
void ForEachArray(const CompactState<Weights, Moments>& a, const CompactState<Weights, Moments>& b,
                  Each each, Scale scale) {
  ForEachArray(a.weights, b.weights, each, scale);
  ForEachArray(a.moments, b.moments, each, scale);
}

// The first `count` <= kQuantiseBlock elements of one block.
template <class State>
void CopyBlock(const State& from, size_t count, const State& to) {
  ForEachArray(
      from, to, [count](const auto* a, auto* b) { std::copy_n(a, count, b); },
      [](const float* a, float* b) { *b = *a; });
}

// One block of any state in the first-level cache, zero at first.
class BlockStorage {
 public:
  template <class Weights, class Moments>
  CompactState<Weights, Moments> View() {
    return {Of(static_cast<Weights*>(nullptr)), Of(static_cast<Moments*>(nullptr))};
  }

 private:
  SplitWeights Of(const SplitWeights* /* type */) { return {weight_, remainder_}; }
  MasterWeights Of(const MasterWeights* /* type */) { return {master_}; }
  EightBitMoments Of(const EightBitMoments* /* type */) {
    return {code1_, &scale1_, code2_, &scale2_};
  }
  BFloat16Moments Of(const BFloat16Moments* /* type */) { return {moment1_, moment2_}; }

  alignas(64) BFloat16 weight_[kQuantiseBlock] = {};
  alignas(64) int16_t remainder_[kQuantiseBlock] = {};
  alignas(64) float master_[kQuantiseBlock] = {};
  alignas(64) uint8_t code1_[kQuantiseBlock] = {};
  alignas(64) uint8_t code2_[kQuantiseBlock] = {};
  alignas(64) BFloat16 moment1_[kQuantiseBlock] = {};
  alignas(64) BFloat16 moment2_[kQuantiseBlock] = {};
  float scale1_ = 0.0F;
  float scale2_ = 0.0F;
};

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_COMPACT_ADAMW_COMPACT_STATE_H_
