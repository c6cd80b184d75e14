#include "client/zero/values/shard_values.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "client/zero/basics/compute.h"
#include "client/zero/basics/data_types.h"
#include "client/zero/values/frozen_values.h"
#include "kernels/runtime/common/bfloat16.h"

namespace geminid::zero {
namespace {

std::byte* ArrayOf(const StateView& view, StateKind kind) {
  return kind == StateKind::kExpAvg ? view.arrays[0] : view.arrays[1];
}

// State in one array of one type: the optimizer's state, and masters that are not split. From
// element `at` on; null: there is none.
struct PlainArray {
  std::byte* data;
  DataType type;
};

PlainArray PlainAt(const StateView& view, StateKind kind, uint64_t at) {
  const bool is_master = kind == StateKind::kMaster;
  PlainArray array = {is_master ? view.weight : ArrayOf(view, kind),
                      is_master ? DataType::kFloat32 : view.state_type};
  if (array.data != nullptr) array.data += at * SizeOf(array.type);
  return array;
}

bool IsSplit(const StateView& view, StateKind kind) {
  return kind == StateKind::kMaster && view.type == DataType::kBFloat16;
}

// A split master, from its element `at` on.
struct Split {
  kernels::BFloat16* weight;
  int16_t* remainder;  // null: the parameter is frozen
};

Split SplitAt(const StateView& view, uint64_t at) {
  return {reinterpret_cast<kernels::BFloat16*>(view.weight) + at,
          view.remainder == nullptr ? nullptr : view.remainder + at};
}

bool IsFrozen(const StateView& view, StateKind kind) {
  return kind == StateKind::kMaster && !IsTrained(view.type);
}

// Reads a weight of a type that is never trained, from its element `at` on.
absl::Status ReadFrozen(const ComputePlace& place, const StateView& view, uint64_t at,
                        std::span<float> values) {
  auto read = std::make_shared<std::vector<std::byte>>(values.size() * SizeOf(view.type));
  place.ops->Copy(*place.stream, read->data(), view.weight + at * SizeOf(view.type), read->size());
  place.Keep(read);
  const absl::Status status = place.Finish();
  if (status.ok()) ToFloats(view.type, *read, values);
  return status;
}

absl::Status WriteFrozen(const ComputePlace& place, const StateView& view, uint64_t at,
                         std::span<const float> values) {
  auto written = std::make_shared<std::vector<std::byte>>(values.size() * SizeOf(view.type));
  FromFloats(view.type, values, *written);
  place.ops->Copy(*place.stream, view.weight + at * SizeOf(view.type), written->data(),
                  written->size());
  place.Keep(written);
  return place.Finish();
}

}  // namespace

bool ShardValues::Has(uint32_t granule, StateKind kind) const {
  if (kind == StateKind::kMaster) return true;
  return store_.arrays_of(granule) > (kind == StateKind::kExpAvg ? 0u : 1u);
}

// On disk is all state except weights.
bool ShardValues::IsOnDisk(uint32_t granule, StateKind kind) const {
  if (!store_.granule_on_disk(granule)) return false;
  return kind != StateKind::kMaster || store_.Current(granule).type == DataType::kBFloat16;
}

std::unique_lock<std::mutex> ShardValues::LockDisk() const {
  return store_.any_on_disk() ? store_.disk()->LockDisk() : std::unique_lock<std::mutex>();
}

absl::Status ShardValues::Read(const ShardPart& part, StateKind kind,
                               std::span<float> values) const {
  const auto read = [&](const StateView& view) { return ReadFrom(view, part, kind, values); };
  if (!IsOnDisk(part.granule, kind)) return read(store_.Current(part.granule));
  return store_.UseOnDisk(part.granule, /*writes=*/false, read);
}

absl::Status ShardValues::Write(const ShardPart& part, StateKind kind,
                                std::span<const float> values) const {
  const auto write = [&](const StateView& view) { return WriteTo(view, part, kind, values); };
  if (!IsOnDisk(part.granule, kind)) return write(store_.Current(part.granule));
  return store_.UseOnDisk(part.granule, /*writes=*/true, write);
}

absl::Status ShardValues::ReadFrom(const StateView& view, const ShardPart& part, StateKind kind,
                                   std::span<float> values) const {
  const ComputePlace& place = store_.ComputeOf(part.granule);
  if (IsFrozen(view, kind)) return ReadFrozen(place, view, part.granule_offset, values);
  auto read = std::make_shared<std::vector<float>>(values.size());
  if (IsSplit(view, kind)) {
    const Split split = SplitAt(view, part.granule_offset);
    place.ops->JoinMaster(*place.stream, split.weight, split.remainder, read->size(), read->data());
  } else if (const PlainArray from = PlainAt(view, kind, part.granule_offset);
             from.data != nullptr) {
    auto* const to = reinterpret_cast<std::byte*>(read->data());
    if (from.type == DataType::kFloat32) {
      place.ops->Copy(*place.stream, to, from.data, values.size_bytes());
    } else {
      place.ops->Assign(*place.stream, {from.data, read->size(), ToDType(from.type)}, to,
                        collectives::DType::kFloat32);
    }
  }
  place.Keep(read);
  const absl::Status status = place.Finish();
  if (status.ok()) std::ranges::copy(*read, values.begin());
  return status;
}

absl::Status ShardValues::WriteTo(const StateView& view, const ShardPart& part, StateKind kind,
                                  std::span<const float> values) const {
  const ComputePlace& place = store_.ComputeOf(part.granule);
  if (IsFrozen(view, kind)) return WriteFrozen(place, view, part.granule_offset, values);
  auto written = std::make_shared<std::vector<float>>(values.begin(), values.end());
  if (IsSplit(view, kind)) {
    const Split split = SplitAt(view, part.granule_offset);
    place.ops->SplitMaster(*place.stream, written->data(), written->size(), split.weight,
                           split.remainder);
  } else if (const PlainArray to = PlainAt(view, kind, part.granule_offset); to.data != nullptr) {
    const auto* const from = reinterpret_cast<const std::byte*>(written->data());
    if (to.type == DataType::kFloat32) {
      place.ops->Copy(*place.stream, to.data, from, values.size_bytes());
    } else {
      place.ops->Assign(*place.stream, {from, written->size(), collectives::DType::kFloat32},
                        to.data, ToDType(to.type));
    }
  }
  place.Keep(written);
  return place.Finish();
}

absl::Status ShardValues::ReadGradient(const ShardPart& part, std::span<float> values) const {
  const ComputePlace& place = store_.ComputeOf(part.granule);
  auto read = std::make_shared<std::vector<float>>(values.size());
  const collectives::DType type = ToDType(store_.GradientType(part.granule));
  const std::byte* const from =
      store_.Gradient(part.granule) + part.granule_offset * collectives::SizeOf(type);
  place.ops->Assign(*place.stream, {from, values.size(), type},
                    reinterpret_cast<std::byte*>(read->data()), collectives::DType::kFloat32);
  place.Keep(read);
  const absl::Status status = place.Finish();
  if (status.ok()) std::ranges::copy(*read, values.begin());
  return status;
}

absl::Status ShardValues::WriteGradient(const ShardPart& part,
                                        std::span<const float> values) const {
  const ComputePlace& place = store_.ComputeOf(part.granule);
  auto written = std::make_shared<std::vector<float>>(values.begin(), values.end());
  const collectives::DType type = ToDType(store_.GradientType(part.granule));
  std::byte* const to =
      store_.Gradient(part.granule) + part.granule_offset * collectives::SizeOf(type);
  place.ops->Assign(*place.stream,
                    {reinterpret_cast<const std::byte*>(written->data()), written->size(),
                     collectives::DType::kFloat32},
                    to, type);
  place.Keep(written);
  return place.Finish();
}

}  // namespace geminid::zero
