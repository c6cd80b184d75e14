#include "training/settings/parallel.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "training/meshes/axes.h"
#include "training/meshes/meshes.h"
#include "training/settings/mesh_choice.h"
#include "training/settings/options.h"
#include "training/settings/tensor_share.h"

namespace geminid::trainer {
namespace {

using collectives::PipelineKind;

absl::Status Refuse(const std::string& words) { return parallel::RefuseParallel(words); }

absl::Status CheckZero(const TrainOptions& options) {
  if (options.zero.stage == zero::Stage::kWeights) return absl::OkStatus();
  if (options.zero.placement != zero::Placement::kCpu) return absl::OkStatus();
  return Refuse(absl::StrCat("zero=", options.parallel.zero,
                             " keeps weights on the device between updates, and with --placement "
                             "cpu they leave it after each operator; leave one of them out"));
}

absl::Status CheckExperts(const TrainOptions& options) {
  if (!options.model.routed()) {
    return Refuse(absl::StrCat("expert=", options.parallel.expert, " spreads experts, and the ",
                               Name(options.model.family),
                               " family has none; take a model of the mixtral family"));
  }
  GEMINID_RETURN_IF_ERROR(parallel::CheckSpread(options.parallel.expert, options.model.experts));
  if (options.parallel.tensor.size > 1 || options.parallel.sequence > 1) {
    return Refuse(
        "expert does not support tensor or sequence yet; take pipeline and data beside it");
  }
  if (options.parallel.pipeline > 1 && options.model.tied_output()) {
    return Refuse(
        "expert does not support pipeline yet for a model whose token table is its output layer; "
        "take data alone beside it");
  }
  if (options.activations == Activations::kKeep) {
    return Refuse("--activations keep does not support distributed experts yet; leave it out");
  }
  return absl::OkStatus();
}

// Backward passes in two halves.
absl::Status CheckInHalves(const TrainOptions& options) {
  GEMINID_RETURN_IF_ERROR(
      parallel::CheckInHalves(ForecastModelOf(options.model), SpecOf(options.parallel)));
  return parallel::CheckMicroBatchesInHalves(static_cast<uint64_t>(options.zero.accumulate));
}

absl::Status CheckPipeline(const TrainOptions& options) {
  const Parallel& cut = options.parallel;
  GEMINID_RETURN_IF_ERROR(parallel::CheckStages(cut.pipeline, cut.chunks, options.model.layers));
  if (cut.schedule == PipelineKind::kZeroBubbleV) GEMINID_RETURN_IF_ERROR(CheckInHalves(options));
  if (cut.schedule == PipelineKind::kInterleaved && options.zero.accumulate % cut.pipeline != 0) {
    return Refuse(
        absl::StrCat("an interleaved pipeline takes as many micro-batches at a time as "
                     "it has stages, ",
                     cut.pipeline, ", which must divide --accumulate, ", options.zero.accumulate,
                     "; take a multiple"));
  }
  return absl::OkStatus();
}

absl::Status CheckSequence(const TrainOptions& options) {
  if (options.parallel.rings() && options.model.attention_window() > 0) {
    return Refuse(absl::StrCat(
        "sequence=ring does not yet support a sliding_window of ", options.model.window,
        " tokens; take sequence=ulysses, or a --context that is no longer than the window"));
  }
  if (options.parallel.sequence > 1 && options.model.image) {
    return Refuse(
        "sequence shards sequences of tokens, and the model reads an image as a whole; leave the "
        "axis out: with data=N each rank reads other images");
  }
  if (options.parallel.rings() && options.model.encodes()) {
    return Refuse(
        absl::StrCat("sequence=ring does not yet support encoders such as those of the ",
                     Name(options.model.family),
                     " family, whose tokens see those after them; take sequence=ulysses"));
  }
  if (options.parallel.sequence > 1 && options.dropout > 0) {
    return Refuse("--dropout does not support a sharded sequence yet; leave it out");
  }
  if (options.parallel.sequence > 1 && options.model.balance_loss > 0) {
    return Refuse(
        "a balance loss is of whole sequences and does not support a sharded sequence yet; give "
        "--balance-loss 0");
  }
  if (options.parallel.sequence > 1 && options.model.expert_capacity > 0) {
    return Refuse(
        "--expert-capacity is of whole sequences and does not support a sharded sequence yet; "
        "leave it out");
  }
  return CheckSizes(options);
}

}  // namespace

absl::StatusOr<Parallel> ParseParallel(const std::string& text) {
  GEMINID_ASSIGN_OR_RETURN(const Parallel axes, parallel::ParseMeshAxes(text));
  if (axes.least_ranks() <= kRanksMax) return axes;
  return Refuse(
      absl::StrCat(text, " is for ", axes.least_ranks(), " ranks; a run has at most ", kRanksMax));
}

parallel::MeshSpec SpecOf(const Parallel& parallel) {
  // An interleaved pipeline, which the planner does not know, cuts layers as 1F1B.
  const bool in_halves = parallel.schedule == PipelineKind::kZeroBubbleV;
  return {.pipeline = parallel.pipeline,
          .schedule = in_halves ? parallel.schedule : PipelineKind::k1F1B,
          .sequence = parallel.sequence,
          .sequence_mode = parallel.sequence_mode,
          .tensor_mode = parallel.tensor.mode,
          .tensor = parallel.tensor.size,
          .depth = parallel.tensor.depth};
}

absl::Status CheckSizes(const TrainOptions& options) {
  return parallel::CheckMeshInWords(ForecastModelOf(options.model), options.model.context,
                                    SpecOf(options.parallel));
}

absl::Status CheckParallel(const TrainOptions& options) {
  GEMINID_RETURN_IF_ERROR(CheckZero(options));
  if (options.parallel.chunks > 1 && options.parallel.pipeline == 1) {
    return Refuse(absl::StrCat("pipeline=", collectives::Name(options.parallel.schedule),
                               " needs at least 2 stages; leave it out for one"));
  }
  if (!options.parallel.cuts()) return absl::OkStatus();
  if (options.activations == Activations::kOffload &&
      (options.parallel.expert > 1 || options.parallel.pipeline > 1)) {
    return Refuse(
        "--activations offload does not support distributed experts or a pipeline yet; take keep, "
        "recompute or auto");
  }
  if (options.parallel.expert > 1) {
    GEMINID_RETURN_IF_ERROR(CheckExperts(options));
    return options.parallel.pipeline > 1 ? CheckPipeline(options) : absl::OkStatus();
  }
  if (options.parallel.tensor.size > 1) GEMINID_RETURN_IF_ERROR(CheckTensor(options));
  if (options.parallel.pipeline > 1) GEMINID_RETURN_IF_ERROR(CheckPipeline(options));
  return CheckSequence(options);
}

absl::StatusOr<collectives::Mesh> MakeMesh(const Parallel& parallel, int world_size) {
  const int cut = parallel.pipeline * parallel.sequence * parallel.tensor.size * parallel.expert;
  const int data = parallel.data.value_or(std::max(1, world_size / cut));
  std::vector<collectives::MeshAxis> axes = {
      {kPipelineAxis, parallel.pipeline}, {kDataAxis, data}, {kSequenceAxis, parallel.sequence}};
  if (parallel.tensor.size > 1) axes.push_back({kTensorAxis, parallel.tensor.size});
  if (parallel.expert > 1) axes.push_back({kExpertAxis, parallel.expert});
  auto mesh = collectives::Mesh::Make(std::move(axes), world_size);
  if (!mesh.ok()) return Refuse(std::string(mesh.status().message()));
  return mesh;
}

}  // namespace geminid::trainer
