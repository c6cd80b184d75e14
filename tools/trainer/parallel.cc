#include "tools/trainer/parallel.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "geminid/optimizer.h"
#include "tools/parallel/axes.h"
#include "tools/parallel/pipeline_axis.h"
#include "tools/trainer/options.h"
#include "tools/trainer/tensor_share.h"

namespace geminid::trainer {
namespace {

constexpr char kUlysses[] = "ulysses";
constexpr char kAutomatic[] = "auto";
constexpr char kRing[] = "ring";

using parallel::ReadSize;

absl::Status Refuse(const std::string& words) { return parallel::RefuseParallel(words); }

// ZBV asks for the gradients of a part's input before those of its weights. The trainer's layers
// give both at once: a weight's gradient takes the weight's place as soon as both have been read,
// and what it is made of is not kept.
absl::Status ParsePipeline(const std::string& value, Parallel* parallel) {
  GEMINID_ASSIGN_OR_RETURN(const parallel::PipelineAxis axis,
                           parallel::ReadPipeline(value, kRanksMax));
  if (axis.kind == collectives::PipelineKind::kZeroBubbleV) {
    return Refuse(
        "pipeline=zbv is not there yet: it needs backward passes in two halves; pipeline=N and "
        "pipeline=interleaved:N:chunks=V are");
  }
  parallel->pipeline = axis.stages;
  parallel->schedule = axis.kind;
  parallel->chunks = axis.chunks;
  return absl::OkStatus();
}

absl::Status ParseSequence(const std::string& value, Parallel* parallel) {
  const parallel::ModeAndSize sized = parallel::SplitMode(value);
  if (sized.mode == kUlysses || sized.mode == kRing) {
    parallel->sequence_mode = sized.mode == kRing ? SequenceMode::kRing : SequenceMode::kUlysses;
    GEMINID_ASSIGN_OR_RETURN(parallel->sequence, ReadSize(kSequenceAxis, sized.size, kRanksMax));
    return absl::OkStatus();
  }
  if (sized.mode == "megatron") {
    return Refuse("sequence=megatron is not there yet; sequence=ulysses:N and sequence=ring:N are");
  }
  return Refuse(absl::StrCat("sequence is '", value, "'; it must be ulysses:N or ring:N"));
}

absl::Status ParseAxis(const std::string& axis, const std::string& value, Parallel* parallel) {
  if (axis == kPipelineAxis) {
    return ParsePipeline(value, parallel);
  } else if (axis == kSequenceAxis) {
    return ParseSequence(value, parallel);
  } else if (axis == kDataAxis) {
    GEMINID_ASSIGN_OR_RETURN(parallel->data, ReadSize(kDataAxis, value, kRanksMax));
  } else if (axis == "zero") {
    GEMINID_ASSIGN_OR_RETURN(parallel->zero, parallel::ReadZero(value));
  } else if (axis == kTensorAxis) {
    GEMINID_ASSIGN_OR_RETURN(parallel->tensor, parallel::ReadTensor(value, kRanksMax));
  } else if (axis == kExpertAxis) {
    GEMINID_ASSIGN_OR_RETURN(parallel->expert, ReadSize(kExpertAxis, value, kRanksMax));
  } else {
    return Refuse(absl::StrCat("there is no axis '", axis,
                               "'; there are pipeline, tensor, sequence, expert, data and zero"));
  }
  return absl::OkStatus();
}

absl::Status CheckZero(const TrainOptions& options) {
  if (options.zero.stage == zero::Stage::kWeights) return absl::OkStatus();
  if (options.zero.stage == zero::Stage::kState && options.parallel.chunks > 1) {
    return Refuse(
        "zero=1 is not there yet with an interleaved pipeline, whose micro-batches have gradients "
        "of some weights alone; take zero=2 or pipeline=N");
  }
  if (options.zero.placement != zero::Placement::kCpu) return absl::OkStatus();
  return Refuse(absl::StrCat("zero=", options.parallel.zero,
                             " keeps weights on the device between updates, and with --placement "
                             "cpu they leave it after each operator; leave one of them out"));
}

absl::Status CheckElementwise(const TrainOptions& options) {
  if (IsElementwise(options.zero.optimizer)) return absl::OkStatus();
  return Refuse(absl::StrCat(
      "--optimizer ", Name(options.zero.optimizer),
      " keeps numbers for each tensor, which checkpoints of a pipeline or of spread experts do not "
      "have yet; take adamw, adam, sgd, adagrad or lion"));
}

absl::Status CheckExperts(const TrainOptions& options) {
  const auto parts = static_cast<uint64_t>(options.parallel.expert);
  if (!options.model.routed()) {
    return Refuse(absl::StrCat("expert=", parts, " spreads experts, and the ",
                               Name(options.model.family),
                               " family has none; take a model of the mixtral family"));
  }
  if (options.model.experts % parts != 0) {
    return Refuse(absl::StrCat("expert=", parts, " must divide the ", options.model.experts,
                               " experts of a layer; take a number that does"));
  }
  if (options.parallel.pipeline > 1 || options.parallel.tensor.size > 1 ||
      options.parallel.sequence > 1) {
    return Refuse(
        "expert is not there yet beside pipeline, tensor or sequence; take data alone beside it");
  }
  if (options.recompute == Recompute::kOff) {
    return Refuse("--recompute off is not there yet with spread experts; leave it out");
  }
  return CheckElementwise(options);
}

absl::Status CheckPipeline(const TrainOptions& options) {
  const Parallel& parallel = options.parallel;
  const uint64_t parts =
      static_cast<uint64_t>(parallel.pipeline) * static_cast<uint64_t>(parallel.chunks);
  if (parts > options.model.layers) {
    return Refuse(absl::StrCat("pipeline=", parallel.pipeline, " needs a layer for each ",
                               parallel.chunks > 1 ? "chunk of each stage" : "stage", ", ", parts,
                               " in all, and the model has ", options.model.layers,
                               "; give at most as many"));
  }
  if (parallel.chunks > 1 && options.zero.accumulate % parallel.pipeline != 0) {
    return Refuse(
        absl::StrCat("an interleaved pipeline takes as many micro-batches at a time as "
                     "it has stages, ",
                     parallel.pipeline, ", which must divide --accumulate, ",
                     options.zero.accumulate, "; take a multiple"));
  }
  return CheckElementwise(options);
}

// Any heads will do.
absl::Status CheckRing(const TrainOptions& options) {
  const auto chunks = 2 * static_cast<uint64_t>(options.parallel.sequence);
  if (options.model.context % chunks == 0) return absl::OkStatus();
  return Refuse(absl::StrCat("sequence=ring:", options.parallel.sequence, " cuts a sequence into ",
                             chunks, " chunks, two for each rank, which must divide its ",
                             options.model.context,
                             " tokens (--context); take a number that does"));
}

absl::Status CheckSequence(const TrainOptions& options) {
  if (options.parallel.sequence > 1 && options.dropout > 0) {
    return Refuse("--dropout is not there yet with a cut sequence; leave it out");
  }
  if (options.parallel.sequence > 1 && options.model.balance_loss > 0) {
    return Refuse(
        "a balance loss, which is of whole sequences, is not there yet with a cut sequence; give "
        "--balance-loss 0");
  }
  if (options.parallel.sequence > 1 && options.model.expert_capacity > 0) {
    return Refuse(
        "--expert-capacity, which is of whole sequences, is not there yet with a cut sequence; "
        "leave it out");
  }
  if (options.parallel.rings()) return CheckRing(options);
  const auto parts = static_cast<uint64_t>(options.parallel.sequence);
  for (const auto& [what, count] :
       std::array{std::pair{"heads", options.model.heads},
                  std::pair{"key/value heads", options.model.kv_heads},
                  std::pair{"tokens of a sequence (--context)", options.model.context}}) {
    if (count % parts == 0) continue;
    return Refuse(absl::StrCat("sequence=ulysses:", parts, " must divide the model's ", count, " ",
                               what, "; take a number that does"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Parallel> ParseParallel(const std::string& text) {
  if (text == kAutomatic) return Parallel{.automatic = true};
  Parallel parallel;
  GEMINID_RETURN_IF_ERROR(
      parallel::ReadAxes(text, [&parallel](const std::string& axis, const std::string& value) {
        return ParseAxis(axis, value, &parallel);
      }));
  const int64_t ranks = int64_t{parallel.pipeline} * parallel.sequence * parallel.tensor.size *
                        parallel.expert * parallel.data.value_or(1);
  if (ranks <= kRanksMax) return parallel;
  return Refuse(absl::StrCat(text, " is for ", ranks, " ranks; a run has at most ", kRanksMax));
}

absl::Status CheckParallel(const TrainOptions& options) {
  GEMINID_RETURN_IF_ERROR(CheckZero(options));
  if (options.parallel.chunks > 1 && options.parallel.pipeline == 1) {
    return Refuse("an interleaved pipeline has 2 stages or more; leave it out for one");
  }
  if (!options.parallel.cuts()) return absl::OkStatus();
  if (options.wants_gpu) {
    return Refuse(
        "--device cuda is not there yet with a pipeline, cut layers, a cut sequence or spread "
        "experts; train on the host, or with data alone");
  }
  if (options.parallel.expert > 1) return CheckExperts(options);
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
