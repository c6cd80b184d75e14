#include "client/zero/values/state_io.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/zero/basics/caught.h"
#include "client/zero/basics/data_types.h"
#include "client/zero/values/frozen_values.h"

namespace geminid::zero {
namespace {

constexpr const char* kFill = "the function that sets values";

}  // namespace

StateIo::StateIo(const EngineSetup& setup, StateStore* store, RankLinks* links)
    : setup_(setup),
      store_(*store),
      links_(*links),
      values_(*store),
      snapshotter_(setup.layout, setup.elements, links->rank(), values_) {}

std::vector<ShardPart> StateIo::PartsOf(uint32_t tensor) const {
  return PartsOfTensor(setup_.layout, tensor, setup_.elements[tensor], links_.rank());
}

std::vector<ShardRange> StateIo::ShardOf(ParameterId id) const {
  std::vector<ShardRange> ranges;
  if (!setup_.CheckId(id).ok()) return ranges;
  for (const ShardPart& part : PartsOf(static_cast<uint32_t>(id))) {
    const bool goes_on =
        !ranges.empty() && ranges.back().offset + ranges.back().elements == part.tensor_offset;
    if (goes_on) {
      ranges.back().elements += part.elements;
    } else {
      ranges.push_back({part.tensor_offset, part.elements});
    }
  }
  return ranges;
}

bool StateIo::Has(ParameterId id, StateKind kind) const {
  if (!setup_.CheckId(id).ok()) return false;
  return values_.Has(setup_.layout.chunks[setup_.ChunkOf(id)].first_granule, kind);
}

absl::Status StateIo::Check(ParameterId id, StateKind kind) const {
  if (Has(id, kind)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("parameter ", static_cast<uint32_t>(id),
                                                 " does not exist or has no such state"));
}

absl::Status StateIo::CheckValues(ParameterId id, uint64_t offset,
                                  std::span<const float> values) const {
  const Parameter& parameter = setup_.parameters[static_cast<uint32_t>(id)];
  const DataType type = TypeOf(parameter, setup_.options);
  const std::optional<size_t> unfit = FirstUnrepresentable(type, values);
  if (!unfit.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "element ", offset + *unfit, " of '", parameter.name, "' is given the value ", values[*unfit],
      ", which ", Name(type), " cannot represent; give whole numbers of its range"));
}

absl::StatusOr<std::vector<ShardPart>> StateIo::PiecesOf(ParameterId id, uint64_t offset,
                                                         uint64_t elements) const {
  std::vector<ShardPart> pieces;
  uint64_t found = 0;
  for (const ShardPart& part : PartsOf(static_cast<uint32_t>(id))) {
    const uint64_t begin = std::max(offset, part.tensor_offset);
    const uint64_t end = std::min(offset + elements, part.tensor_offset + part.elements);
    if (begin >= end) continue;
    ShardPart piece = part;
    piece.tensor_offset = begin;
    piece.granule_offset += begin - part.tensor_offset;
    piece.elements = end - begin;
    found += piece.elements;
    pieces.push_back(piece);
  }
  if (found == elements) return pieces;
  return absl::InvalidArgumentError(
      absl::StrCat("elements ", offset, " to ", offset + elements, " of '",
                   setup_.parameters[static_cast<uint32_t>(id)].name,
                   "' are not all in this rank's shard; ShardOf returns the shard"));
}

absl::Status StateIo::Read(const Pieces& pieces, StateKind kind, uint64_t offset,
                           std::span<float> values) const {
  for (const ShardPart& piece : pieces) {
    const auto to = values.subspan(piece.tensor_offset - offset, piece.elements);
    GEMINID_RETURN_IF_ERROR(values_.Read(piece, kind, to));
  }
  return absl::OkStatus();
}

absl::Status StateIo::Write(const Pieces& pieces, StateKind kind, uint64_t offset,
                            std::span<const float> values) {
  store_.SetResumable(false);
  for (const ShardPart& piece : pieces) {
    const auto from = values.subspan(piece.tensor_offset - offset, piece.elements);
    GEMINID_RETURN_IF_ERROR(values_.Write(piece, kind, from));
  }
  return absl::OkStatus();
}

absl::Status StateIo::ReadGradient(const Pieces& pieces, uint64_t offset, double scale,
                                   std::span<float> values) const {
  for (const ShardPart& piece : pieces) {
    const auto to = values.subspan(piece.tensor_offset - offset, piece.elements);
    GEMINID_RETURN_IF_ERROR(values_.ReadGradient(piece, to));
  }
  for (float& value : values) value = static_cast<float>(value * scale);
  return absl::OkStatus();
}

absl::Status StateIo::WriteGradient(const Pieces& pieces, uint64_t offset, double scale,
                                    std::span<const float> values) {
  std::vector<float> kept(values.begin(), values.end());
  for (float& value : kept) value = static_cast<float>(value / scale);
  for (const ShardPart& piece : pieces) {
    const auto from = std::span(kept).subspan(piece.tensor_offset - offset, piece.elements);
    GEMINID_RETURN_IF_ERROR(values_.WriteGradient(piece, from));
  }
  return absl::OkStatus();
}

// --- by all ranks together -----------------------------------------------------------------------

absl::Status StateIo::Initialize(const Engine::Fill& fill, absl::Status* filled) {
  store_.SetResumable(false);
  std::vector<float> values;
  for (uint32_t tensor = 0; tensor < setup_.parameters.size(); ++tensor) {
    values.assign(setup_.elements[tensor], 0.0f);
    *filled = Caught(kFill, [&] { return fill(ParameterId{tensor}, values); });
    if (filled->ok()) *filled = CheckValues(ParameterId{tensor}, 0, values);
    if (!filled->ok()) break;
    GEMINID_RETURN_IF_ERROR(Write(PartsOf(tensor), StateKind::kMaster, 0, values));
  }
  return absl::OkStatus();
}

absl::Status StateIo::InitializeShards(const Engine::FillRange& fill, absl::Status* filled) {
  store_.SetResumable(false);
  std::vector<float> values;
  for (uint32_t tensor = 0; tensor < setup_.parameters.size(); ++tensor) {
    for (const ShardPart& part : PartsOf(tensor)) {
      values.assign(part.elements, 0.0f);
      *filled =
          Caught(kFill, [&] { return fill(ParameterId{tensor}, part.tensor_offset, values); });
      if (filled->ok()) *filled = CheckValues(ParameterId{tensor}, part.tensor_offset, values);
      if (!filled->ok()) return absl::OkStatus();
      GEMINID_RETURN_IF_ERROR(values_.Write(part, StateKind::kMaster, values));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<uint32_t>> StateIo::FirstWithout(const absl::Status& filled) {
  std::optional<uint32_t> mine;
  if (!filled.ok()) mine = static_cast<uint32_t>(links_.rank());
  return links_.agreement().Least(mine, static_cast<uint32_t>(links_.world_size()));
}

// Each element is in one rank's shard and zero elsewhere. So a sum of bit patterns as integers
// brings each value to all ranks unchanged, including negative zero and NaN.
absl::StatusOr<std::vector<float>> StateIo::ReadParameter(ParameterId id) {
  const auto tensor = static_cast<uint32_t>(id);
  std::vector<float> values(setup_.elements[tensor], 0.0f);
  GEMINID_RETURN_IF_ERROR(Read(PartsOf(tensor), StateKind::kMaster, 0, values));
  std::vector<int32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), bits.size() * sizeof(float));
  GEMINID_RETURN_IF_ERROR(links_.control()->AllReduce(bits, bits, collectives::ReduceOp::kSum));
  std::memcpy(values.data(), bits.data(), bits.size() * sizeof(float));
  return values;
}

}  // namespace geminid::zero
