#include "tools/parallel/mesh_spec.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "tools/parallel/axes.h"
#include "tools/parallel/pipeline_axis.h"
#include "tools/parallel/tensor_axis.h"

namespace geminid::parallel {
namespace {

using collectives::TensorGrid;

absl::Status ReadSizeInto(const char* axis, const std::string& text, int* size) {
  GEMINID_ASSIGN_OR_RETURN(*size, ReadSize(axis, text, kRanksMax));
  return absl::OkStatus();
}

absl::Status TakePipeline(const std::string& value, MeshSpec* mesh) {
  GEMINID_ASSIGN_OR_RETURN(const PipelineAxis axis, ReadPipeline(value, kRanksMax));
  mesh->pipeline = axis.stages;
  if (axis.kind == collectives::PipelineKind::k1F1B) return absl::OkStatus();
  return RefuseParallel(absl::StrCat(
      "pipeline=", collectives::Name(axis.kind),
      " cannot be planned; give the number of stages alone, which run 1F1B, such as pipeline=2"));
}

absl::Status ReadSequence(const std::string& value, MeshSpec* mesh) {
  const ModeAndSize sized = SplitMode(value);
  if (sized.mode == "ulysses") return ReadSizeInto("sequence", sized.size, &mesh->sequence);
  if (sized.mode == "ring")
    return RefuseParallel("sequence=ring cannot be planned; sequence=ulysses:N can");
  if (sized.mode == "megatron") {
    return RefuseParallel(
        "tokens that are cut with the layers are a mode of tensor: tensor=1d-sequence:N");
  }
  return RefuseParallel(absl::StrCat("sequence is '", value, "'; it must be ulysses:N"));
}

absl::Status ReadTensorInto(const std::string& value, MeshSpec* mesh) {
  GEMINID_ASSIGN_OR_RETURN(const TensorAxis axis, ReadTensor(value, kRanksMax));
  mesh->tensor_mode = axis.mode;
  mesh->tensor = axis.size;
  mesh->depth = axis.depth;
  return absl::OkStatus();
}

absl::Status CheckZero(const std::string& value) {
  GEMINID_ASSIGN_OR_RETURN(const int stage, ReadZero(value));
  if (stage == 3) return absl::OkStatus();
  return RefuseParallel(absl::StrCat(
      "zero=", value, " cannot be planned yet: gathers and memory are reckoned for zero=3"));
}

absl::Status ParseAxis(const std::string& axis, const std::string& value, ParsedMesh* parsed) {
  if (axis == "pipeline") return TakePipeline(value, &parsed->mesh);
  if (axis == "sequence") return ReadSequence(value, &parsed->mesh);
  if (axis == "tensor") return ReadTensorInto(value, &parsed->mesh);
  if (axis == "data") {
    parsed->data_is_given = true;
    return ReadSizeInto("data", value, &parsed->mesh.data);
  }
  if (axis == "zero") return CheckZero(value);
  if (axis == "expert") {
    return RefuseParallel("expert cannot be planned; pipeline, tensor, sequence and data can");
  }
  return RefuseParallel(absl::StrCat("there is no axis '", axis,
                                     "'; there are pipeline, tensor, sequence, data and zero"));
}

}  // namespace

absl::StatusOr<ParsedMesh> ParseMesh(const std::string& text) {
  ParsedMesh parsed;
  GEMINID_RETURN_IF_ERROR(
      ReadAxes(text, [&parsed](const std::string& axis, const std::string& value) {
        return ParseAxis(axis, value, &parsed);
      }));
  const MeshSpec& m = parsed.mesh;
  std::int64_t ranks = 1;
  for (const int size : {m.pipeline, m.data, m.sequence, m.tensor}) {
    ranks *= size;
    if (ranks <= kRanksMax) continue;
    return RefuseParallel(absl::StrCat(text, " has more than ", kRanksMax, " ranks"));
  }
  return parsed;
}

std::string ToString(const MeshSpec& m) {
  std::vector<std::string> axes;
  if (m.pipeline > 1) axes.push_back(absl::StrCat("pipeline=", m.pipeline));
  if (m.tensor > 1) {
    axes.push_back(absl::StrCat("tensor=", collectives::Name(m.tensor_mode), ":size=", m.tensor,
                                m.depth > 1 ? absl::StrCat(":depth=", m.depth) : ""));
  }
  if (m.sequence > 1) axes.push_back(absl::StrCat("sequence=ulysses:", m.sequence));
  if (m.data > 1 || axes.empty()) axes.push_back(absl::StrCat("data=", m.data));
  return absl::StrJoin(axes, ",");
}

TensorGrid GridOf(const MeshSpec& mesh) {
  return *TensorGrid::Make(mesh.tensor_mode, mesh.tensor, mesh.depth);
}

}  // namespace geminid::parallel
