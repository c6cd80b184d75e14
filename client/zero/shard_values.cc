#include "client/zero/shard_values.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <vector>

#include "kernels/numeric/cast/cast.h"
#include "kernels/numeric/split_master/split_master.h"

namespace geminid::zero {
namespace {

const float* ArrayOf(const StateStore::View& view, StateKind kind) {
  return kind == StateKind::kExpAvg ? view.arrays[0] : view.arrays[1];
}

// The kernels refuse nothing here but null pointers, which a granule's arrays are not.
void Expect([[maybe_unused]] kernels::Status status) { assert(status == kernels::Status::kOk); }

void JoinMaster(const StateStore::View& view, uint64_t at, std::span<float> values) {
  const auto* weight = reinterpret_cast<const kernels::BFloat16*>(view.weight) + at;
  if (view.remainder == nullptr) {
    Expect(kernels::CastToFloat(weight, values.size(), values.data()));
  } else {
    Expect(kernels::JoinMaster(weight, view.remainder + at, values.size(), values.data()));
  }
}

void SplitMaster(const StateStore::View& view, uint64_t at, std::span<const float> values) {
  auto* weight = reinterpret_cast<kernels::BFloat16*>(view.weight) + at;
  if (view.remainder != nullptr) {
    return Expect(kernels::SplitMaster(values.data(), values.size(), weight, view.remainder + at));
  }
  std::vector<int16_t> unused(values.size());
  Expect(kernels::SplitMaster(values.data(), values.size(), weight, unused.data()));
}

}  // namespace

bool ShardValues::Has(uint32_t granule, StateKind kind) const {
  return kind == StateKind::kMaster || ArrayOf(store_.Current(granule), kind) != nullptr;
}

void ShardValues::Read(const ShardPart& part, StateKind kind, std::span<float> values) const {
  const StateStore::View view = store_.Current(part.granule);
  if (kind == StateKind::kMaster && data_type_ == DataType::kBFloat16) {
    return JoinMaster(view, part.granule_offset, values);
  }
  const float* from = kind == StateKind::kMaster ? reinterpret_cast<const float*>(view.weight)
                                                 : ArrayOf(view, kind);
  if (from == nullptr) {
    std::fill(values.begin(), values.end(), 0.0F);
  } else {
    std::memcpy(values.data(), from + part.granule_offset, values.size_bytes());
  }
}

void ShardValues::Write(const ShardPart& part, StateKind kind,
                        std::span<const float> values) const {
  const StateStore::View view = store_.Current(part.granule);
  if (kind == StateKind::kMaster && data_type_ == DataType::kBFloat16) {
    return SplitMaster(view, part.granule_offset, values);
  }
  float* to = kind == StateKind::kMaster ? reinterpret_cast<float*>(view.weight)
                                         : const_cast<float*>(ArrayOf(view, kind));
  if (to != nullptr) std::memcpy(to + part.granule_offset, values.data(), values.size_bytes());
}

}  // namespace geminid::zero
