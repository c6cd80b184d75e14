#include "training/nn/parallel/stages/held_bytes.h"

#include <algorithm>

namespace geminid::collectives {

uint64_t MostHeldBytes(std::span<const PipelineAction> actions, std::span<const PartBytes> parts) {
  uint64_t now = 0, most = 0;
  for (const PipelineAction& action : actions) {
    const PartBytes& part = parts[static_cast<size_t>(action.part)];
    switch (action.work) {
      case PipelineWork::kForward:
        now += part.forward;
        break;
      case PipelineWork::kBackwardInput:
        // Operator by operator, the later bytes replace the forward bytes.
        now = now - part.forward + part.later;
        break;
      case PipelineWork::kBackwardWeight:
        now -= part.later;
        break;
      case PipelineWork::kBackward:
        now -= part.forward;
        break;
    }
    most = std::max(most, now);
  }
  return most;
}

}  // namespace geminid::collectives
