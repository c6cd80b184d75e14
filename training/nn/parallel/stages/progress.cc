#include "training/nn/parallel/stages/progress.h"

#include <algorithm>

namespace geminid::collectives {

PipelineProgress::PipelineProgress(const PipelineShape& shape, const PipelineCosts& costs)
    : shape_(shape),
      costs_(costs),
      times_(static_cast<size_t>(shape.stages) * static_cast<size_t>(shape.parts) *
             static_cast<size_t>(shape.micro_batches)) {}

size_t PipelineProgress::IndexOf(int micro_batch, int position) const {
  return static_cast<size_t>(micro_batch) * static_cast<size_t>(shape_.stages * shape_.parts) +
         static_cast<size_t>(position);
}

const PipelineProgress::Times& PipelineProgress::At(int micro_batch, int position) const {
  return times_[IndexOf(micro_batch, position)];
}

double PipelineProgress::Arrived(double at, int position, int stage) const {
  return PlaceAt(shape_, position).stage == stage ? at : at + costs_.transfer;
}

double PipelineProgress::ReadyAt(int stage, const PipelineAction& action) const {
  const int position = PositionOf(shape_, stage, action.part);
  const Times& own = At(action.micro_batch, position);
  switch (action.work) {
    case PipelineWork::kForward:
      if (position == 0) return 0;
      return Arrived(At(action.micro_batch, position - 1).forward, position - 1, stage);
    case PipelineWork::kBackward:
    case PipelineWork::kBackwardInput: {
      if (position + 1 == shape_.stages * shape_.parts) return own.forward;
      const double after = At(action.micro_batch, position + 1).input;
      return std::max(own.forward, Arrived(after, position + 1, stage));
    }
    case PipelineWork::kBackwardWeight:
      return own.input;
  }
  return kNever;
}

double PipelineProgress::CostOf(PipelineWork work) const {
  switch (work) {
    case PipelineWork::kForward:
      return costs_.forward;
    case PipelineWork::kBackward:
      return costs_.backward_input + costs_.backward_weight;
    case PipelineWork::kBackwardInput:
      return costs_.backward_input;
    case PipelineWork::kBackwardWeight:
      return costs_.backward_weight;
  }
  return 0;
}

bool PipelineProgress::IsDone(int stage, const PipelineAction& action) const {
  const Times& times = At(action.micro_batch, PositionOf(shape_, stage, action.part));
  switch (action.work) {
    case PipelineWork::kForward:
      return times.forward != kNever;
    case PipelineWork::kBackwardInput:
      return times.input != kNever;
    case PipelineWork::kBackward:
    case PipelineWork::kBackwardWeight:
      return times.weight != kNever;
  }
  return false;
}

void PipelineProgress::Finish(int stage, const PipelineAction& action, double at) {
  Times& times = times_[IndexOf(action.micro_batch, PositionOf(shape_, stage, action.part))];
  switch (action.work) {
    case PipelineWork::kForward:
      times.forward = at;
      break;
    case PipelineWork::kBackward:
      times.input = times.weight = at;
      break;
    case PipelineWork::kBackwardInput:
      times.input = at;
      break;
    case PipelineWork::kBackwardWeight:
      times.weight = at;
      break;
  }
}

}  // namespace geminid::collectives
