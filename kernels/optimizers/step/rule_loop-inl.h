// A rule of kernels/optimizers/step/rule.h on vectors. Included once per instruction set, as
// kernels/runtime/simd/lanes-inl.h is.
#if defined(GEMINID_KERNELS_OPTIMIZERS_STEP_RULE_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GEMINID_KERNELS_OPTIMIZERS_STEP_RULE_LOOP_INL_H_
#undef GEMINID_KERNELS_OPTIMIZERS_STEP_RULE_LOOP_INL_H_
#else
#define GEMINID_KERNELS_OPTIMIZERS_STEP_RULE_LOOP_INL_H_
#endif

#include <cstddef>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/optimizers/step/elementwise.h"
#include "kernels/optimizers/step/rule.h"
#include "kernels/runtime/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {

using FloatLanesTag = hn::ScalableTag<float>;

// The F of a rule: a vector with the arithmetic of a float. The targets are those whose vectors
// have a size at compile time (kernels/runtime/simd/targets.h). Rules are compiled without an
// instruction set of their own, so functions cannot be forced inline into them; UpdateBlock
// (flatten) inlines all of them.
struct FloatLanes {
  hn::Vec<FloatLanesTag> v;
};

inline FloatLanes operator+(FloatLanes a, FloatLanes b) { return {hn::Add(a.v, b.v)}; }
inline FloatLanes operator-(FloatLanes a, FloatLanes b) { return {hn::Sub(a.v, b.v)}; }
inline FloatLanes operator*(FloatLanes a, FloatLanes b) { return {hn::Mul(a.v, b.v)}; }
inline FloatLanes operator/(FloatLanes a, FloatLanes b) { return {hn::Div(a.v, b.v)}; }
inline FloatLanes operator+(FloatLanes a, float b) {
  return {hn::Add(a.v, hn::Set(FloatLanesTag(), b))};
}
inline FloatLanes operator*(FloatLanes a, float b) {
  return {hn::Mul(a.v, hn::Set(FloatLanesTag(), b))};
}
inline FloatLanes SquareRoot(FloatLanes x) { return {hn::Sqrt(x.v)}; }
inline FloatLanes CanonicalNaN(FloatLanes x) { return {CanonicalNaN(FloatLanesTag(), x.v)}; }
inline FloatLanes Sign(FloatLanes x) {
  const FloatLanesTag d;
  const auto zero = hn::Zero(d);
  const auto below = hn::IfThenElse(hn::Lt(x.v, zero), hn::Set(d, -1.0F), x.v);
  return {hn::IfThenElse(hn::Gt(x.v, zero), hn::Set(d, 1.0F), below)};
}

template <bool kStream>
HWY_INLINE void StoreLanes(FloatLanes x, float* to) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kStream) {
    hn::Stream(x.v, FloatLanesTag(), to);
    return;
  }
#endif
  hn::StoreU(x.v, FloatLanesTag(), to);
}

template <class Rule>
HWY_INLINE void UpdateOne(const Rule& rule, const RuleBlock& b, size_t i) {
  Element<float> e;
  e.gradient = b.gradient[i];
  e.weight = b.weight[i];
  for (int s = 0; s < Rule::kStates; ++s) e.state[s] = b.state[s][i];
  for (int f = 0; f < Rule::kFactors; ++f) e.factor[f] = b.factor[f][i];
  rule(e);
  b.new_weight[i] = e.weight;
  if (!b.store_state) return;
  for (int s = 0; s < Rule::kStates; ++s) b.new_state[s][i] = e.state[s];
}

template <bool kStoreState, bool kStream, bool kStreamWeight, class Rule>
__attribute__((flatten)) void UpdateBlock(const Rule& given_rule, const RuleBlock& given_block) {
  const FloatLanesTag d;
  const Rule rule = given_rule;  // local, so that no store can change it
  const RuleBlock b = given_block;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= b.count; i += hn::Lanes(d)) {
    for (int s = 0; s < Rule::kStates; ++s) hwy::Prefetch(b.state[s] + i + kPrefetchElements);
    Element<FloatLanes> e;
    e.gradient = {hn::LoadU(d, b.gradient + i)};
    e.weight = {hn::LoadU(d, b.weight + i)};
    for (int s = 0; s < Rule::kStates; ++s) e.state[s] = {hn::LoadU(d, b.state[s] + i)};
    for (int f = 0; f < Rule::kFactors; ++f) e.factor[f] = {hn::LoadU(d, b.factor[f] + i)};
    rule(e);
    StoreLanes<kStreamWeight>(e.weight, b.new_weight + i);
    if constexpr (!kStoreState) continue;
    for (int s = 0; s < Rule::kStates; ++s) StoreLanes<kStream>(e.state[s], b.new_state[s] + i);
  }
  for (; i < b.count; ++i) UpdateOne(rule, b, i);
}

template <class Rule>
HWY_INLINE void RuleLoop(const void* rule, const RuleBlock& block) {
  const Rule& typed = *static_cast<const Rule*>(rule);
  if (!block.store_state) {
    UpdateBlock<false, false, false>(typed, block);
  } else if (!block.stream) {
    UpdateBlock<true, false, false>(typed, block);
  } else if (block.stream_weight) {
    UpdateBlock<true, true, true>(typed, block);
  } else {
    UpdateBlock<true, true, false>(typed, block);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// The loop of one rule, in namespace HWY_NAMESPACE; and, once, its dispatch as CallOf(rule).
#ifndef GEMINID_DEFINE_RULE_LOOP
#define GEMINID_DEFINE_RULE_LOOP(Rule) \
  void Rule##Loop(const void* rule, const RuleBlock& block) { RuleLoop<Rule>(rule, block); }
#define GEMINID_DEFINE_RULE_CALL(Rule)                             \
  void Dispatch##Rule(const void* rule, const RuleBlock& b) {      \
    GEMINID_KERNEL_LOOP(Rule##Loop)(rule, b);                      \
  }                                                                \
  RuleCall CallOf(const Rule& rule) {                              \
    return {&rule, Dispatch##Rule, Rule::kStates, Rule::kFactors}; \
  }
#endif
