#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/numeric/norm/block_tree.h"
#include "kernels/optimizers/step/elementwise.h"
#include "kernels/runtime/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/optimizers/step/elementwise_host.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/optimizers/step/rule_loop-inl.h"
#include "kernels/optimizers/step/staging.h"
#include "kernels/runtime/common/float_environment.h"

HWY_BEFORE_NAMESPACE();
namespace geminid::kernels {
namespace HWY_NAMESPACE {
GEMINID_DEFINE_RULE_LOOP(ScaledGradientRule)
}  // namespace HWY_NAMESPACE
}  // namespace geminid::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace geminid::kernels {
GEMINID_DEFINE_RULE_CALL(ScaledGradientRule)
namespace {

constexpr size_t kLineBytes = 64;
// Small enough that the next block, prefetched while this one is computed, stays in the cache.
constexpr size_t kBlock = kPrefetchElements;
static_assert(kBlock * sizeof(uint16_t) % kLineBytes == 0);  // blocks keep the alignment

bool OnLine(const void* p) { return reinterpret_cast<uintptr_t>(p) % kLineBytes == 0; }

// Whether every array is null or starts a line.
bool AllOnLine(const ParameterArrays& a, int states) {
  bool on_line = OnLine(a.master) && OnLine(a.bfloat16) && OnLine(a.remainder);
  for (int s = 0; s < states; ++s) {
    on_line = on_line && OnLine(a.state[s]) && OnLine(a.small_state[s]);
  }
  return on_line;
}

// Nulls the arrays that the forms do not have, so that they do not affect the alignment.
ParameterArrays OfForm(ParameterArrays a) {
  const bool split = a.form == WeightForm::kSplit;
  if (split) a.master = nullptr;
  if (!split) a.remainder = nullptr;
  if (!split) a.bfloat16 = nullptr;
  const bool small = a.state_form == StateForm::kBFloat16;
  for (float*& state : a.state) state = small ? nullptr : state;
  for (BFloat16*& state : a.small_state) state = small ? state : nullptr;
  return a;
}

bool InPlace(const ConstParameterArrays& from, const ParameterArrays& to) {
  return to.form == WeightForm::kSplit ? from.bfloat16 == to.bfloat16 : from.master == to.master;
}

// The first element, of the 32 16-bit ones in a line, at which every array starts a line; `count`
// if there is none: then nothing is streamed.
size_t StreamBegin(const ParameterArrays& a, int states, size_t count) {
  constexpr size_t kMost = kLineBytes / sizeof(uint16_t);
  for (size_t first = 0; first < std::min(kMost, count); ++first) {
    if (AllOnLine(Advance(a, first), states)) return first;
  }
  return count;
}

void UpdateOneBlock(const RuleCall& call, const ReadPass& pass, bool stream,
                    const ParameterArrays& to) {
  alignas(kLineBytes) float gradient_space[kBlock];
  alignas(kLineBytes) float weight_space[kBlock];
  alignas(kLineBytes) float state_space[kMaxStateArrays][kBlock];
  const bool direct = to.form == WeightForm::kFloat;
  const bool small = to.state_form == StateForm::kBFloat16;
  RuleBlock block = {};
  block.count = pass.count;
  block.gradient = StageGradient(pass.gradient, pass.count, gradient_space);
  block.weight = StageWeights(pass.arrays, pass.count, weight_space);
  block.new_weight = direct ? to.master : weight_space;
  for (int s = 0; s < call.states; ++s) {
    block.state[s] = StageState(pass.arrays, s, pass.count, state_space[s]);
    block.new_state[s] = small ? state_space[s] : to.state[s];
  }
  for (int f = 0; f < call.factors; ++f) block.factor[f] = pass.factor[f];
  block.store_state = true;
  block.stream = stream && !small;
  block.stream_weight = block.stream && direct;
  call.loop(call.rule, block);
  if (small) StoreStates(block.new_state, call.states, pass.count, stream, to);
  if (!direct) StoreWeights(weight_space, pass.count, stream, to);
}

double Canonical(double sum) {
  return std::isnan(sum) ? std::numeric_limits<double>::quiet_NaN() : sum;
}

}  // namespace

ReadPass ReadPass::From(size_t offset) const {
  ReadPass rest = *this;
  rest.arrays = Advance(arrays, offset);
  rest.gradient = Advance(gradient, offset);
  for (const float*& f : rest.factor) {
    if (f != nullptr) f += offset;
  }
  rest.count = count - offset;
  return rest;
}

void UpdateElements(const RuleCall& call, const ReadPass& pass, const ParameterArrays& new_arrays) {
  const ParameterArrays to = OfForm(new_arrays);
  const size_t stream_begin =
      InPlace(pass.arrays, to) ? pass.count : StreamBegin(to, call.states, pass.count);
  for (size_t begin = 0; begin < pass.count;) {
    const size_t end =
        begin < stream_begin ? std::min(stream_begin, begin + kBlock) : begin + kBlock;
    ReadPass block = pass.From(begin);
    block.count = std::min(end, pass.count) - begin;
    UpdateOneBlock(call, block, begin >= stream_begin, Advance(to, begin));
    begin += block.count;
  }
  if (stream_begin < pass.count) hwy::FlushStream();
}

void MeasureElements(const RuleCall& call, const ReadPass& pass, const SquareTotals& totals) {
  alignas(kLineBytes) float gradient_space[kSumBlock];
  alignas(kLineBytes) float weight_space[kSumBlock] = {};
  alignas(kLineBytes) float result[kSumBlock];
  alignas(kLineBytes) float state_space[kMaxStateArrays][kSumBlock];
  BlockTree result_squares(totals.result == nullptr ? 0 : *totals.result);
  BlockTree weight_squares(totals.weight == nullptr ? 0 : *totals.weight);
  const bool weights = pass.arrays.master != nullptr || pass.arrays.bfloat16 != nullptr;
  for (size_t begin = 0; begin < pass.count; begin += kSumBlock) {
    const ReadPass rest = pass.From(begin);
    RuleBlock block = {};
    block.count = std::min(kSumBlock, rest.count);
    block.gradient = StageGradient(rest.gradient, block.count, gradient_space);
    block.weight = weights ? StageWeights(rest.arrays, block.count, weight_space) : weight_space;
    block.new_weight = result;
    for (int s = 0; s < call.states; ++s) {
      block.state[s] = StageState(rest.arrays, s, block.count, state_space[s]);
    }
    for (int f = 0; f < call.factors; ++f) block.factor[f] = rest.factor[f];
    call.loop(call.rule, block);
    if (totals.result != nullptr) result_squares.Add(BlockSquares(result, block.count));
    if (totals.weight != nullptr) weight_squares.Add(BlockSquares(block.weight, block.count));
    if (totals.columns != nullptr) AddColumnSquares(result, block.count, totals.columns + begin);
  }
  if (totals.result != nullptr) *totals.result = Canonical(result_squares.Total());
  if (totals.weight != nullptr) *totals.weight = Canonical(weight_squares.Total());
}

Status StepElements(const RuleCall& call, const ConstParameterArrays& old_arrays,
                    const GradientArray& gradient, size_t count,
                    const ParameterArrays& new_arrays) {
  const Status status = CheckStepArrays(old_arrays, gradient, count, call.states, new_arrays);
  if (status != Status::kOk || count == 0) return status;
  const ScopedFloatEnvironment environment;
  UpdateElements(call, {.arrays = old_arrays, .gradient = gradient, .count = count}, new_arrays);
  return Status::kOk;
}

}  // namespace geminid::kernels
#endif  // HWY_ONCE
