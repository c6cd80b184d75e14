#include "training/nn/parallel/stages/schedule.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "training/nn/parallel/stages/zero_bubble.h"

namespace geminid::collectives {
namespace {

absl::Status CheckShape(const PipelineShape& shape) {
  if (shape.stages < 1 || shape.micro_batches < 1 || shape.parts < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a pipeline of %d stages, %d micro-batches and %d parts per stage: each is "
                        "at least 1",
                        shape.stages, shape.micro_batches, shape.parts));
  }
  const auto refuse_parts = [&](const char* takes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s takes %s per stage, not %d", Name(shape.kind), takes, shape.parts));
  };
  switch (shape.kind) {
    case PipelineKind::k1F1B:
      return shape.parts == 1 ? absl::OkStatus() : refuse_parts("1 part");
    case PipelineKind::kZeroBubbleV:
      return shape.parts == 2 ? absl::OkStatus() : refuse_parts("2 parts");
    case PipelineKind::kInterleaved:
      break;
  }
  if (shape.parts < 2) return refuse_parts("2 parts or more");
  if (shape.micro_batches % shape.stages == 0) return absl::OkStatus();
  const int below = shape.micro_batches / shape.stages * shape.stages;
  return absl::InvalidArgumentError(absl::StrFormat(
      "interleaved: %d micro-batches over %d stages; take a multiple of the stages, such as %d",
      shape.micro_batches, shape.stages, below == 0 ? shape.stages : below));
}

// `warm_up` forwards, then a forward and a backward in turn, then the remaining backwards.
template <class ForwardAt, class BackwardAt>
std::vector<PipelineAction> InTurn(int total, int warm_up, ForwardAt forward_at,
                                   BackwardAt backward_at) {
  std::vector<PipelineAction> actions;
  int forwards = 0;
  const auto forward = [&] { actions.push_back(forward_at(forwards++)); };
  while (forwards < std::min(warm_up, total)) forward();
  for (int backwards = 0; backwards < total; ++backwards) {
    if (forwards < total) forward();
    actions.push_back(backward_at(backwards));
  }
  return actions;
}

// The number of forwards before the first pair of forward and backward.
int WarmUpOf1F1B(const PipelineShape& shape, int stage) { return shape.stages - 1 - stage; }
int WarmUpOfInterleaved(const PipelineShape& shape, int stage) {
  return 2 * (shape.stages - 1 - stage) + (shape.parts - 1) * shape.stages;
}

std::vector<PipelineAction> StageOf1F1B(const PipelineShape& shape, int stage) {
  return InTurn(
      shape.micro_batches, WarmUpOf1F1B(shape, stage),
      [](int m) {
        return PipelineAction{PipelineWork::kForward, 0, m};
      },
      [](int m) {
        return PipelineAction{PipelineWork::kBackward, 0, m};
      });
}

// Forwards go in rounds: S micro-batches pass the first part, then the same ones the next part, and
// so on.
std::vector<PipelineAction> StageOfInterleaved(const PipelineShape& shape, int stage) {
  const int round = shape.stages * shape.parts;
  const auto part_at = [&](int k) { return k % round / shape.stages; };
  const auto micro_batch_at = [&](int k) { return k / round * shape.stages + k % shape.stages; };
  return InTurn(
      shape.micro_batches * shape.parts, WarmUpOfInterleaved(shape, stage),
      [&](int k) {
        return PipelineAction{PipelineWork::kForward, part_at(k), micro_batch_at(k)};
      },
      [&](int k) {
        return PipelineAction{PipelineWork::kBackward, shape.parts - 1 - part_at(k),
                              micro_batch_at(k)};
      });
}

}  // namespace

const char* Name(PipelineKind kind) {
  switch (kind) {
    case PipelineKind::k1F1B:
      return "1f1b";
    case PipelineKind::kInterleaved:
      return "interleaved";
    case PipelineKind::kZeroBubbleV:
      return "zbv";
  }
  return "?";
}

int MostInFlight(const PipelineShape& shape, int stage) {
  const int all = shape.micro_batches * shape.parts;
  switch (shape.kind) {
    case PipelineKind::k1F1B:
      return std::min(WarmUpOf1F1B(shape, stage) + 1, all);
    case PipelineKind::kInterleaved:
      return std::min(WarmUpOfInterleaved(shape, stage) + 1, all);
    case PipelineKind::kZeroBubbleV:
      break;
  }
  return std::min(shape.parts * shape.stages, all);
}

int PositionOf(const PipelineShape& shape, int stage, int part) {
  if (shape.kind == PipelineKind::kZeroBubbleV && part == 1) return 2 * shape.stages - 1 - stage;
  return part * shape.stages + stage;
}

PipelinePlace PlaceAt(const PipelineShape& shape, int position) {
  const int part = position / shape.stages;
  const int along = position % shape.stages;
  const bool back = shape.kind == PipelineKind::kZeroBubbleV && part == 1;
  return {.stage = back ? shape.stages - 1 - along : along, .part = part};
}

absl::StatusOr<PipelineSchedule> MakePipelineSchedule(const PipelineShape& shape,
                                                      const PipelineCosts& costs) {
  GEMINID_RETURN_IF_ERROR(CheckShape(shape));
  if (shape.kind == PipelineKind::kZeroBubbleV) return ZeroBubbleSchedule(shape, costs);
  PipelineSchedule schedule;
  for (int stage = 0; stage < shape.stages; ++stage) {
    schedule.push_back(shape.kind == PipelineKind::k1F1B ? StageOf1F1B(shape, stage)
                                                         : StageOfInterleaved(shape, stage));
  }
  return schedule;
}

}  // namespace geminid::collectives
