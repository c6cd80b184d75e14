#include "training/scaling/state_image.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "kernels/numeric/cast/cast.h"
#include "kernels/runtime/common/bfloat16.h"

namespace geminid::trainer {
namespace {

constexpr uint64_t kBlockElements = uint64_t{1} << 20;
constexpr uint64_t kLine = 64;

// At the start of the image. The tensor state and the arrays follow, each on a cache line boundary.
struct Position {
  uint64_t fingerprint = 0;
  uint64_t step = 0;
  uint64_t updates = 0;
  double loss_scale = 0;
  uint32_t good_steps = 0;
  uint32_t overflows = 0;
  uint64_t data_position = 0;
  std::array<uint64_t, 4> random_state = {};
  checkpoint::Health health = checkpoint::Health::kHealthy;
};

uint64_t OnLine(uint64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

uint64_t ElementsOf(const zero::Parameter& parameter) {
  uint64_t elements = 1;
  for (const int64_t dimension : parameter.shape) elements *= static_cast<uint64_t>(dimension);
  return elements;
}

// `type` is fp32 or bf16. The values come from this type, so the conversion is exact.
void Pack(std::span<const float> values, zero::DataType type, std::byte* bytes) {
  if (type == zero::DataType::kFloat32) {
    std::memcpy(bytes, values.data(), values.size_bytes());
  } else {
    (void)kernels::CastToBFloat16(values.data(), values.size(),
                                  reinterpret_cast<kernels::BFloat16*>(bytes));
  }
}

void Unpack(const std::byte* bytes, zero::DataType type, std::span<float> values) {
  if (type == zero::DataType::kFloat32) {
    std::memcpy(values.data(), bytes, values.size_bytes());
  } else {
    (void)kernels::CastToFloat(reinterpret_cast<const kernels::BFloat16*>(bytes), values.size(),
                               values.data());
  }
}

absl::Status OtherModel(uint64_t bytes, uint64_t expected) {
  return absl::InternalError(
      absl::StrCat("the state that was handed over belongs to another model: ", bytes,
                   " bytes, not ", expected));
}

}  // namespace

absl::StatusOr<StateImage> StateImage::Of(zero::ModelState* state,
                                          const std::vector<zero::Parameter>& parameters) {
  GEMINID_ASSIGN_OR_RETURN(const zero::Progress progress, state->GetProgress());
  StateImage image(state, progress.tensor_state.size());
  uint64_t place = image.position_bytes();
  for (uint32_t i = 0; i < parameters.size(); ++i) {
    const zero::ParameterId id{i};
    for (const zero::StateKind kind : zero::kStateKinds) {
      if (!state->HasState(id, kind)) continue;
      const zero::DataType type =
          kind == zero::StateKind::kMaster ? zero::DataType::kFloat32 : state->state_type();
      image.arrays_.push_back({id, kind, type, ElementsOf(parameters[i]), place});
      place += OnLine(image.arrays_.back().elements * SizeOf(type));
    }
  }
  image.bytes_ = place;
  return image;
}

uint64_t StateImage::Fingerprint() const {
  base::Fnv1a hash;
  hash.Add(tensor_state_bytes_);
  for (const Array& array : arrays_) {
    hash.Add(static_cast<uint64_t>(array.id));
    hash.Add(static_cast<uint64_t>(array.kind));
    hash.Add(static_cast<uint64_t>(array.type));
    hash.Add(array.elements);
  }
  return hash.value();
}

absl::Status StateImage::Write(std::span<std::byte> image) const {
  for (const ArraySlice& piece : PiecesOf(Shards())) {
    GEMINID_RETURN_IF_ERROR(Load(piece, In(image, piece)));
  }
  return absl::OkStatus();
}

absl::Status StateImage::Read(std::span<const std::byte> image) const {
  if (image.size() < bytes_) return OtherModel(image.size(), bytes_);
  for (const ArraySlice& piece : PiecesOf(Shards())) {
    const Array& array = arrays_[piece.array];
    const uint64_t place = array.place + piece.first * SizeOf(array.type);
    GEMINID_RETURN_IF_ERROR(Store(piece, image.subspan(place, BytesOf(piece))));
  }
  return absl::OkStatus();
}

// --- pieces --------------------------------------------------------------------------------------

std::vector<StateRange> StateImage::Shards() const {
  std::vector<StateRange> shards;
  std::optional<uint32_t> before;
  for (const Array& array : arrays_) {  // those of a parameter follow each other
    const auto parameter = static_cast<uint32_t>(array.id);
    if (before == parameter) continue;
    before = parameter;
    for (const zero::ShardRange& range : state_->ShardOf(array.id)) {
      if (range.elements > 0) shards.push_back({parameter, range.offset, range.elements});
    }
  }
  return shards;
}

std::vector<StateImage::ArraySlice> StateImage::PiecesOf(
    const std::vector<StateRange>& ranges) const {
  std::vector<ArraySlice> pieces;
  for (const StateRange& range : ranges) {
    const auto first = std::ranges::lower_bound(
        arrays_, range.parameter, {}, [](const Array& of) { return static_cast<uint32_t>(of.id); });
    for (auto array = first; array != arrays_.end(); ++array) {
      if (static_cast<uint32_t>(array->id) != range.parameter) break;
      for (uint64_t at = 0; at < range.elements; at += kBlockElements) {
        pieces.push_back({static_cast<size_t>(array - arrays_.begin()), range.first + at,
                          std::min(kBlockElements, range.elements - at)});
      }
    }
  }
  return pieces;
}

uint64_t StateImage::BytesOf(const ArraySlice& piece) const {
  return piece.elements * SizeOf(arrays_[piece.array].type);
}

std::span<std::byte> StateImage::In(std::span<std::byte> image, const ArraySlice& piece) const {
  const Array& array = arrays_[piece.array];
  return image.subspan(array.place + piece.first * SizeOf(array.type), BytesOf(piece));
}

absl::Status StateImage::Load(const ArraySlice& piece, std::span<std::byte> bytes) const {
  const Array& array = arrays_[piece.array];
  std::vector<float> values(piece.elements);
  GEMINID_RETURN_IF_ERROR(state_->ReadShard(array.id, array.kind, piece.first, values));
  Pack(values, array.type, bytes.data());
  return absl::OkStatus();
}

absl::Status StateImage::Store(const ArraySlice& piece, std::span<const std::byte> bytes) const {
  const Array& array = arrays_[piece.array];
  std::vector<float> values(piece.elements);
  Unpack(bytes.data(), array.type, values);
  return state_->WriteShard(array.id, array.kind, piece.first, values);
}

// --- a part of an image --------------------------------------------------------------------------

uint64_t StateImage::BytesWithTable(const std::vector<StateRange>& ranges) const {
  return bytes_ + sizeof(uint64_t) + ranges.size() * sizeof(StateRange);
}

std::vector<StatePart> StateImage::PartsWithTable(const std::vector<StateRange>& ranges) const {
  std::vector<StatePart> parts = {{0, position_bytes()}};
  for (const ArraySlice& piece : PiecesOf(ranges)) {
    const Array& array = arrays_[piece.array];
    parts.push_back({array.place + piece.first * SizeOf(array.type), BytesOf(piece)});
  }
  parts.push_back({bytes_, BytesWithTable(ranges) - bytes_});
  return parts;
}

void StateImage::WriteTable(const std::vector<StateRange>& ranges,
                            std::span<std::byte> image) const {
  const uint64_t count = ranges.size();
  std::memcpy(&image[bytes_], &count, sizeof(count));
  if (count == 0) return;
  std::memcpy(&image[bytes_ + sizeof(count)], ranges.data(), count * sizeof(StateRange));
}

std::vector<StateRange> StateImage::WholeOf(const std::vector<Array>& arrays) {
  std::vector<StateRange> whole;
  for (const Array& array : arrays) {
    const auto parameter = static_cast<uint32_t>(array.id);
    if (!whole.empty() && whole.back().parameter == parameter) continue;
    whole.push_back({parameter, 0, array.elements});
  }
  return whole;
}

absl::StatusOr<std::vector<StateRange>> StateImage::ReadTable(
    std::span<const std::byte> image) const {
  if (image.empty()) return std::vector<StateRange>();
  if (image.size() == bytes_) return WholeOf(arrays_);
  uint64_t count = 0;
  const bool has_count = image.size() >= bytes_ + sizeof(count);
  if (has_count) std::memcpy(&count, &image[bytes_], sizeof(count));
  const uint64_t room =
      has_count ? (image.size() - bytes_ - sizeof(count)) / sizeof(StateRange) : 0;
  if (!has_count || count > room) return OtherModel(image.size(), bytes_);
  std::vector<StateRange> ranges(count);
  if (count > 0) {
    std::memcpy(ranges.data(), &image[bytes_ + sizeof(count)], count * sizeof(StateRange));
  }
  const RangeSet whole(WholeOf(arrays_));
  if (!whole.Without(ranges).empty()) return OtherModel(image.size(), bytes_);
  return ranges;
}

// --- position ------------------------------------------------------------------------------------

uint64_t StateImage::position_bytes() const {
  return OnLine(sizeof(Position)) + OnLine(tensor_state_bytes_);
}

absl::Status StateImage::WritePosition(const RunPosition& position,
                                       std::span<std::byte> image) const {
  const zero::Progress& progress = position.progress;
  if (progress.tensor_state.size() != tensor_state_bytes_ || image.size() < bytes_) {
    return absl::InternalError(absl::StrCat(
        "the state's image has ", image.size(), " bytes and ", progress.tensor_state.size(),
        " of tensor state; it needs ", bytes_, " and ", tensor_state_bytes_));
  }
  const Position words = {.fingerprint = Fingerprint(),
                          .step = progress.step,
                          .updates = progress.updates,
                          .loss_scale = progress.loss_scaler.scale,
                          .good_steps = progress.loss_scaler.good_steps,
                          .overflows = progress.loss_scaler.overflows,
                          .data_position = position.run.data_position,
                          .random_state = position.run.random_state,
                          .health = position.health};
  std::memcpy(image.data(), &words, sizeof(words));
  std::ranges::copy(progress.tensor_state, image.begin() + OnLine(sizeof(words)));
  return absl::OkStatus();
}

absl::StatusOr<RunPosition> StateImage::ReadPosition(std::span<const std::byte> image) const {
  Position words;
  const bool has_words = image.size() == position_bytes() || image.size() >= bytes_;
  if (has_words) std::memcpy(&words, image.data(), sizeof(words));
  if (!has_words || words.fingerprint != Fingerprint()) return OtherModel(image.size(), bytes_);
  const auto tensor_state = image.subspan(OnLine(sizeof(words)), tensor_state_bytes_);
  return RunPosition{
      .progress = {.step = words.step,
                   .updates = words.updates,
                   .loss_scaler = {.scale = words.loss_scale,
                                   .good_steps = words.good_steps,
                                   .overflows = words.overflows},
                   .tensor_state = {tensor_state.begin(), tensor_state.end()}},
      .run = {.data_position = words.data_position, .random_state = words.random_state},
      .health = words.health};
}

}  // namespace geminid::trainer
