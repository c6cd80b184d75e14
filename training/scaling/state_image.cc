#include "training/scaling/state_image.h"

#include <algorithm>
#include <array>
#include <cstring>

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

}  // namespace

absl::StatusOr<StateImage> StateImage::Of(zero::ModelState* state,
                                          const std::vector<zero::Parameter>& parameters) {
  GEMINID_ASSIGN_OR_RETURN(const zero::Progress progress, state->GetProgress());
  StateImage image(state, progress.tensor_state.size());
  uint64_t place = OnLine(sizeof(Position)) + OnLine(image.tensor_state_bytes_);
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
  std::vector<float> values;
  for (const Array& array : arrays_) {
    for (const zero::ShardRange& range : state_->ShardOf(array.id)) {
      for (uint64_t at = 0; at < range.elements; at += kBlockElements) {
        values.resize(std::min(kBlockElements, range.elements - at));
        const uint64_t first = range.offset + at;
        GEMINID_RETURN_IF_ERROR(state_->ReadShard(array.id, array.kind, first, values));
        Pack(values, array.type, &image[array.place + first * SizeOf(array.type)]);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status StateImage::Read(std::span<const std::byte> image) const {
  std::vector<float> values;
  for (const Array& array : arrays_) {
    for (const zero::ShardRange& range : state_->ShardOf(array.id)) {
      for (uint64_t at = 0; at < range.elements; at += kBlockElements) {
        values.resize(std::min(kBlockElements, range.elements - at));
        const uint64_t first = range.offset + at;
        Unpack(&image[array.place + first * SizeOf(array.type)], array.type, values);
        GEMINID_RETURN_IF_ERROR(state_->WriteShard(array.id, array.kind, first, values));
      }
    }
  }
  return absl::OkStatus();
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
  if (image.size() == bytes_) std::memcpy(&words, image.data(), sizeof(words));
  if (image.size() != bytes_ || words.fingerprint != Fingerprint()) {
    return absl::InternalError(absl::StrCat("the state that was handed over is another model's: ",
                                            image.size(), " bytes, not ", bytes_));
  }
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
