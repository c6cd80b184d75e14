#include "training/meshes/mesh_axes.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "training/meshes/axes.h"

namespace geminid::parallel {
namespace {

constexpr char kAutomatic[] = "auto";

struct Read {
  MeshAxes axes;
  bool tensor = false;
  std::optional<int> megatron_size;
};

absl::Status TakeSequence(const std::string& value, Read* read) {
  const ModeAndSize sized = SplitMode(value);
  const bool megatron = sized.mode == "megatron";
  if (!megatron && sized.mode != Name(SequenceMode::kUlysses) &&
      sized.mode != Name(SequenceMode::kRing)) {
    return RefuseParallel(
        absl::StrCat("sequence is '", value,
                     "'; it must be ulysses:N, ring:N, or megatron:N, which is short "
                     "for tensor=1d-sequence:N"));
  }
  GEMINID_ASSIGN_OR_RETURN(const int size, ReadSize("sequence", sized.size, kRanksMax));
  if (megatron) {
    read->megatron_size = size;
    return absl::OkStatus();
  }
  read->axes.sequence = size;
  read->axes.sequence_mode =
      sized.mode == Name(SequenceMode::kRing) ? SequenceMode::kRing : SequenceMode::kUlysses;
  return absl::OkStatus();
}

absl::Status TakeAxis(const std::string& axis, const std::string& value, Read* read) {
  MeshAxes& axes = read->axes;
  if (axis == "pipeline") {
    GEMINID_ASSIGN_OR_RETURN(const PipelineAxis pipeline, ReadPipeline(value, kRanksMax));
    axes.pipeline = pipeline.stages;
    axes.schedule = pipeline.kind;
    axes.chunks = pipeline.chunks;
  } else if (axis == "tensor") {
    read->tensor = true;
    GEMINID_ASSIGN_OR_RETURN(axes.tensor, ReadTensor(value, kRanksMax));
  } else if (axis == "sequence") {
    return TakeSequence(value, read);
  } else if (axis == "expert") {
    GEMINID_ASSIGN_OR_RETURN(axes.expert, ReadSize(axis, value, kRanksMax));
  } else if (axis == "data") {
    GEMINID_ASSIGN_OR_RETURN(axes.data, ReadSize(axis, value, kRanksMax));
  } else if (axis == "zero") {
    GEMINID_ASSIGN_OR_RETURN(const ZeroAxis zero, ReadZero(value));
    axes.zero = zero.stage;
    axes.zero_within_host = zero.within_host;
  } else {
    return RefuseParallel(
        absl::StrCat("there is no axis '", axis,
                     "'; the axes are pipeline, tensor, sequence, expert, data and zero"));
  }
  return absl::OkStatus();
}

}  // namespace

const char* Name(SequenceMode mode) { return mode == SequenceMode::kRing ? "ring" : "ulysses"; }

int MeshAxes::least_ranks() const {
  std::int64_t ranks = 1;
  for (const int size : {pipeline, tensor.size, sequence, expert, data.value_or(1)}) {
    // Beyond what ParseMeshAxes takes it does not matter how many.
    if (ranks <= kRanksMax) ranks *= size;
  }
  return static_cast<int>(std::min<std::int64_t>(ranks, std::numeric_limits<int>::max()));
}

absl::StatusOr<MeshAxes> ParseMeshAxes(const std::string& text) {
  if (text == kAutomatic) return MeshAxes{.automatic = true};
  if (text.starts_with(absl::StrCat(kAutomatic, ","))) {
    return RefuseParallel(absl::StrCat("auto chooses every axis, and '",
                                       text.substr(sizeof(kAutomatic)),
                                       "' gives some; leave out auto or the axes"));
  }
  Read read;
  GEMINID_RETURN_IF_ERROR(
      ReadAxes(text, [&read](const std::string& axis, const std::string& value) {
        return TakeAxis(axis, value, &read);
      }));
  if (read.megatron_size && read.tensor) {
    return RefuseParallel(
        "sequence=megatron:N means tensor=1d-sequence:N, and tensor is given, too; leave one of "
        "the two out");
  }
  if (read.megatron_size) {
    read.axes.tensor = {.mode = collectives::TensorMode::k1DSequence, .size = *read.megatron_size};
  }
  if (read.axes.least_ranks() <= kRanksMax) return read.axes;
  return RefuseParallel(absl::StrCat(text, " has more than ", kRanksMax, " ranks"));
}

}  // namespace geminid::parallel
