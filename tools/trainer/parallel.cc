#include "tools/trainer/parallel.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/flag_values.h"
#include "base/status_macros.h"
#include "geminid/optimizer.h"
#include "tools/trainer/options.h"

namespace geminid::trainer {
namespace {

constexpr char kUlysses[] = "ulysses";

absl::Status Refuse(const std::string& words) {
  return absl::InvalidArgumentError(absl::StrCat("--parallel: ", words));
}

absl::StatusOr<int> ParseSize(std::string_view axis, const std::string& text) {
  GEMINID_ASSIGN_OR_RETURN(const uint64_t size,
                           base::ParseCount(absl::StrCat("--parallel: ", std::string(axis)).c_str(),
                                            text, 1, kRanksMax));
  return static_cast<int>(size);
}

// "MODE:N"; the mode may be left out where there is one.
struct Sized {
  std::string mode;
  std::string size;
};
Sized SplitMode(const std::string& value) {
  const std::vector<std::string> pieces = absl::StrSplit(value, absl::MaxSplits(':', 1));
  return pieces.size() == 1 ? Sized{"", pieces[0]} : Sized{pieces[0], pieces[1]};
}

absl::StatusOr<int> ParsePipeline(const std::string& value) {
  const Sized sized = SplitMode(value);
  if (sized.mode == "interleaved" || sized.mode == "zbv") {
    return Refuse(absl::StrCat("pipeline=", sized.mode,
                               " is not there yet; give the number of stages alone, which run "
                               "1F1B, such as pipeline=2"));
  }
  if (!sized.mode.empty() && sized.mode != "1f1b") {
    return Refuse(absl::StrCat("pipeline has no schedule '", sized.mode,
                               "'; give the number of stages, such as pipeline=2"));
  }
  return ParseSize(kPipelineAxis, sized.size);
}

absl::StatusOr<int> ParseSequence(const std::string& value) {
  const Sized sized = SplitMode(value);
  if (sized.mode == kUlysses) return ParseSize(kSequenceAxis, sized.size);
  if (sized.mode == "ring" || sized.mode == "megatron") {
    return Refuse(
        absl::StrCat("sequence=", sized.mode, " is not there yet; sequence=ulysses:N is"));
  }
  return Refuse(absl::StrCat("sequence is '", value, "'; it must be ulysses:N"));
}

absl::Status ParseAxis(const std::string& text, Parallel* parallel) {
  const std::vector<std::string> pieces = absl::StrSplit(text, absl::MaxSplits('=', 1));
  const std::string& axis = pieces[0];
  if (pieces.size() < 2) {
    return Refuse(absl::StrCat("'", text, "' is not AXIS=SIZE; an example: pipeline=2,data=2"));
  }
  const std::string& value = pieces[1];
  if (axis == kPipelineAxis) {
    GEMINID_ASSIGN_OR_RETURN(parallel->pipeline, ParsePipeline(value));
  } else if (axis == kSequenceAxis) {
    GEMINID_ASSIGN_OR_RETURN(parallel->sequence, ParseSequence(value));
  } else if (axis == kDataAxis) {
    GEMINID_ASSIGN_OR_RETURN(parallel->data, ParseSize(kDataAxis, value));
  } else if (axis == "zero") {
    if (value != "3") {
      return Refuse(absl::StrCat("zero is '", value,
                                 "'; it can be 3 alone: weights, gradients and the optimizer's "
                                 "state are always shared out over data and sequence"));
    }
  } else if (axis == "tensor" || axis == "expert") {
    return Refuse(absl::StrCat(axis, " is not there yet; pipeline, sequence and data are"));
  } else {
    return Refuse(
        absl::StrCat("there is no axis '", axis, "'; there are pipeline, sequence, data and zero"));
  }
  return absl::OkStatus();
}

absl::Status CheckPipeline(const TrainOptions& options) {
  const int stages = options.parallel.pipeline;
  if (static_cast<uint64_t>(stages) > options.model.layers) {
    return Refuse(absl::StrCat("pipeline=", stages,
                               " needs a layer for each stage, and the model "
                               "has ",
                               options.model.layers, "; give at most as many stages"));
  }
  if (!IsElementwise(options.zero.optimizer)) {
    return Refuse(absl::StrCat(
        "--optimizer ", Name(options.zero.optimizer),
        " keeps numbers for each tensor, which checkpoints of a pipeline do not have yet; take "
        "adamw, adam, sgd, adagrad or lion"));
  }
  return absl::OkStatus();
}

absl::Status CheckSequence(const TrainOptions& options) {
  if (options.parallel.sequence > 1 && options.dropout > 0) {
    return Refuse("--dropout is not there yet with a cut sequence; leave it out");
  }
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
  Parallel parallel;
  std::vector<std::string> seen;
  for (const std::string& piece : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const std::string axis = piece.substr(0, piece.find('='));
    for (const std::string& other : seen) {
      if (other == axis) return Refuse(absl::StrCat(axis, " is there twice; give it once"));
    }
    seen.push_back(axis);
    GEMINID_RETURN_IF_ERROR(ParseAxis(piece, &parallel));
  }
  const int64_t ranks = int64_t{parallel.pipeline} * parallel.sequence * parallel.data.value_or(1);
  if (ranks <= kRanksMax) return parallel;
  return Refuse(absl::StrCat(text, " is for ", ranks, " ranks; a run has at most ", kRanksMax));
}

absl::Status CheckParallel(const TrainOptions& options) {
  if (!options.parallel.cuts()) return absl::OkStatus();
  const auto refuse = [](const char* flag, const char* instead) {
    return Refuse(
        absl::StrCat(flag, " is not there yet with a pipeline or a cut sequence; ", instead));
  };
  if (options.restarts > 0) return refuse("--restarts", "leave it out, and go on with --resume");
  if (options.zero.loss_scale.has_value()) return refuse("--loss-scale", "leave it out");
  if (options.wants_gpu) return refuse("--device cuda", "train on the host, or with data alone");
  if (options.parallel.pipeline > 1) GEMINID_RETURN_IF_ERROR(CheckPipeline(options));
  return CheckSequence(options);
}

absl::StatusOr<collectives::Mesh> MakeMesh(const Parallel& parallel, int world_size) {
  const int cut = parallel.pipeline * parallel.sequence;
  const int data = parallel.data.value_or(std::max(1, world_size / cut));
  auto mesh = collectives::Mesh::Make(
      {{kPipelineAxis, parallel.pipeline}, {kDataAxis, data}, {kSequenceAxis, parallel.sequence}},
      world_size);
  if (!mesh.ok()) return Refuse(std::string(mesh.status().message()));
  return mesh;
}

}  // namespace geminid::trainer
