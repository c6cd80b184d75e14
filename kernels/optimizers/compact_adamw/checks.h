// Argument checks of a step with compact moments. Internal to it.
#ifndef GEMINID_KERNELS_OPTIMIZERS_COMPACT_ADAMW_CHECKS_H_
#define GEMINID_KERNELS_OPTIMIZERS_COMPACT_ADAMW_CHECKS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/optimizers/compact_adamw/compact_adamw.h"
#include "kernels/optimizers/compact_adamw/compact_state.h"
#include "kernels/runtime/common/buffers.h"

namespace geminid::kernels {

// The arrays of a state as the checks see them.
class CompactBuffers {
 public:
  template <class State>
  CompactBuffers(const State& state, size_t count) {
    ForEachArray(
        state, state, [&](auto* a, auto*) { list_[size_++] = Buffer::Of(a, count); },
        [&](float* a, float*) { list_[size_++] = Buffer::Of(a, QuantiseScaleCount(count)); });
  }
  std::span<const Buffer> List() const { return {list_.data(), size_}; }
  void Add(const Buffer& buffer) { list_[size_++] = buffer; }

 private:
  std::array<Buffer, 8> list_ = {};
  size_t size_ = 0;
};

// Whether all arrays (kOk), or none (kUnsupported), of the two states begin at the same place.
template <class State>
Status CompareArrays(const State& a, const State& b, bool* in_place) {
  size_t same = 0, arrays = 0;
  const auto compare = [&](const auto* x, const auto* y) {
    ++arrays;
    same += x == y ? 1 : 0;
  };
  ForEachArray(a, b, compare, compare);
  *in_place = same == arrays;
  return same == 0 || same == arrays ? Status::kOk : Status::kOverlap;
}

template <class State, typename Gradient>
Status CheckArrays(const State& old_state, const Gradient* gradient, size_t count,
                   const State& new_state, bool* in_place) {
  if (count == 0) return Status::kOk;
  if (Status status = CompareArrays(old_state, new_state, in_place); status != Status::kOk) {
    return status;
  }
  const CompactBuffers outputs(new_state, count);
  const Buffer input = Buffer::Of(gradient, count);
  if (*in_place) return CheckBuffers(std::span(&input, 1), outputs.List());
  CompactBuffers inputs(old_state, count);
  inputs.Add(input);
  return CheckBuffers(inputs.List(), outputs.List());
}

// All but the options. *in_place: the new state is the old one's arrays.
template <class State, typename Gradient>
Status CheckCompactStep(uint64_t first_element, const State& old_state, const Gradient* gradient,
                        size_t count, const State& new_state, bool* in_place) {
  if (first_element % kQuantiseBlock != 0) return Status::kMisaligned;
  if (count > UINT64_MAX - first_element) return Status::kSizeOverflow;
  return CheckArrays(old_state, gradient, count, new_state, in_place);
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_COMPACT_ADAMW_CHECKS_H_
