#include "training/meshes/mesh_spec.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "training/meshes/axes.h"

namespace geminid::parallel {

using collectives::TensorGrid;

absl::StatusOr<ParsedMesh> MeshToPlan(const MeshAxes& axes) {
  if (axes.schedule == collectives::PipelineKind::kInterleaved) {
    return RefuseParallel(
        "pipeline=interleaved cannot be planned; give the number of stages alone, which run 1F1B, "
        "such as pipeline=2, or pipeline=zbv:2");
  }
  if (axes.expert > 1) {
    return RefuseParallel("expert cannot be planned; pipeline, tensor, sequence and data can");
  }
  return ParsedMesh{
      .mesh = {.pipeline = axes.pipeline,
               .schedule = axes.schedule,
               .data = axes.data.value_or(1),
               .sequence = axes.sequence,
               .sequence_mode = axes.sequence > 1 ? axes.sequence_mode : SequenceMode::kUlysses,
               .tensor_mode = axes.tensor.mode,
               .tensor = axes.tensor.size,
               .depth = axes.tensor.depth,
               .zero = axes.zero,
               .within_host = axes.zero_within_host},
      .data_is_given = axes.data.has_value()};
}

absl::StatusOr<ParsedMesh> ParseMesh(const std::string& text) {
  GEMINID_ASSIGN_OR_RETURN(const MeshAxes axes, ParseMeshAxes(text));
  return MeshToPlan(axes);
}

std::string ToString(const MeshSpec& m) {
  std::vector<std::string> axes;
  if (m.in_halves()) {
    axes.push_back(absl::StrCat("pipeline=", collectives::Name(m.schedule), ":", m.pipeline));
  } else if (m.pipeline > 1) {
    axes.push_back(absl::StrCat("pipeline=", m.pipeline));
  }
  if (m.tensor > 1) {
    axes.push_back(absl::StrCat("tensor=", collectives::Name(m.tensor_mode), ":size=", m.tensor,
                                m.depth > 1 ? absl::StrCat(":depth=", m.depth) : ""));
  }
  if (m.sequence > 1) {
    axes.push_back(absl::StrCat("sequence=", Name(m.sequence_mode), ":", m.sequence));
  }
  if (m.data > 1 || axes.empty()) axes.push_back(absl::StrCat("data=", m.data));
  if (m.within_host) axes.push_back("zero=3:host");
  if (m.zero != 3) axes.push_back(absl::StrCat("zero=", m.zero));
  return absl::StrJoin(axes, ",");
}

TensorGrid GridOf(const MeshSpec& mesh) {
  return *TensorGrid::Make(mesh.tensor_mode, mesh.tensor, mesh.depth);
}

}  // namespace geminid::parallel
