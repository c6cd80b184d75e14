#include "training/meshes/pipeline_axis.h"

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "training/meshes/axes.h"

namespace geminid::parallel {
namespace {

using collectives::PipelineKind;

constexpr int kLeastChunks = 2;

std::optional<PipelineKind> KindOf(const std::string& name) {
  for (const PipelineKind kind :
       {PipelineKind::k1F1B, PipelineKind::kInterleaved, PipelineKind::kZeroBubbleV}) {
    if (name == collectives::Name(kind)) return kind;
  }
  return std::nullopt;
}

absl::StatusOr<int> ReadChunks(const std::string& text, int most) {
  const std::vector<std::string> sides = absl::StrSplit(text, absl::MaxSplits('=', 1));
  if (sides.size() < 2 || sides[0] != "chunks") {
    return RefuseParallel(
        absl::StrCat("pipeline has no '", text, "'; an interleaved one has stages and chunks"));
  }
  GEMINID_ASSIGN_OR_RETURN(const int chunks, ReadSize("pipeline's chunks", sides[1], most));
  if (chunks >= kLeastChunks) return chunks;
  return RefuseParallel(
      "an interleaved pipeline needs at least 2 chunks for each stage; for 1 chunk give "
      "pipeline=N");
}

}  // namespace

absl::StatusOr<PipelineAxis> ReadPipeline(const std::string& value, int most) {
  std::vector<std::string> pieces = absl::StrSplit(value, ':');
  if (pieces.size() == 1) pieces.insert(pieces.begin(), collectives::Name(PipelineKind::k1F1B));
  const std::optional<PipelineKind> kind = KindOf(pieces[0]);
  if (!kind) {
    return RefuseParallel(
        absl::StrCat("pipeline has no schedule '", pieces[0],
                     "'; the schedules are 1f1b, interleaved and zbv, as in pipeline=2 "
                     "or pipeline=interleaved:2:chunks=2"));
  }
  PipelineAxis axis = {.kind = *kind};
  GEMINID_ASSIGN_OR_RETURN(axis.stages, ReadSize("pipeline", pieces[1], most));
  const bool interleaves = *kind == PipelineKind::kInterleaved;
  if (pieces.size() != (interleaves ? 3 : 2)) {
    return RefuseParallel(absl::StrCat(
        "pipeline is '", value, "'; ",
        interleaves ? "it needs stages and chunks, as in pipeline=interleaved:2:chunks=2"
                    : "it takes the number of stages alone, as in pipeline=2"));
  }
  if (interleaves) {
    GEMINID_ASSIGN_OR_RETURN(axis.chunks, ReadChunks(pieces[2], most));
  } else if (*kind == PipelineKind::kZeroBubbleV) {
    axis.chunks = 2;
  }
  return axis;
}

}  // namespace geminid::parallel
