// ZeRO's stages, and what chunks are called.
#include "absl/strings/str_cat.h"
#include "client/zero/engine_impl.h"

namespace geminid::zero {

absl::Status EngineImpl::CheckStage() const {
  if (options_.stage < Stage::kState || options_.stage > Stage::kWeights) {
    return absl::InvalidArgumentError(absl::StrCat("there is no ZeRO stage ",
                                                   static_cast<int>(options_.stage),
                                                   "; there are 1 (kState), 2 (kGradients) and 3 "
                                                   "(kWeights)"));
  }
  if (weights_stay() && options_.placement == Placement::kCpu) {
    return absl::InvalidArgumentError(
        absl::StrCat("in ZeRO's stage ", static_cast<int>(options_.stage),
                     " weights stay on the device, and with placement cpu they leave it after each "
                     "operator; use stage 3, or another placement"));
  }
  if (weights_stay() && options_.host_ranks != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("in ZeRO's stage ", static_cast<int>(options_.stage),
                     " each rank keeps all weights from one update to the next, and gathers "
                     "nothing again within its host; use stage 3, or leave Options::host_ranks "
                     "out"));
  }
  return absl::OkStatus();
}

// The last one reduces what all of them added up.
absl::Status EngineImpl::CheckMicroBatches(const char* call) const {
  const int begun = open_.micro_batches + (director_->in_micro_batch() ? 1 : 0);
  if (!sums_gradients() || begun == MicroBatchesOfStep()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      call, " after ", begun, " micro-batches of ", MicroBatchesOfStep(),
      ": in ZeRO's stage 1 the last of them reduces the gradients of all; run the others, give the "
      "step up with CancelMicroBatch, or use stage 2 for steps that end early"));
}

std::string EngineImpl::NamesIn(uint32_t chunk) const {
  const std::vector<uint32_t>& tensors = layout_.chunks[chunk].tensors;
  std::string first = absl::StrCat("'", parameters_[tensors.front()].name, "'");
  if (tensors.size() == 1) return first;
  return absl::StrCat(first, " to '", parameters_[tensors.back()].name, "'");
}

std::string EngineImpl::NameOfGathered(uint32_t chunk) const {
  const uint32_t owner = book_->owners()[chunk];
  return absl::StrCat(chunk == owner ? "" : "the gradient of ", NamesIn(owner));
}

}  // namespace geminid::zero
