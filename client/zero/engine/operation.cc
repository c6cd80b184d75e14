#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "client/zero/engine/engine_impl.h"

namespace geminid::zero {

bool Operation::State::Has(ParameterId id) const {
  return std::ranges::find(parameters, id) != parameters.end();
}

Operation::Operation(std::unique_ptr<State> state) : state_(std::move(state)) {}
Operation::Operation(Operation&&) noexcept = default;

Operation& Operation::operator=(Operation&& other) noexcept {
  if (this == &other) return *this;
  FinishIfOpen();
  state_ = std::move(other.state_);
  return *this;
}

Operation::~Operation() { FinishIfOpen(); }

// Finish's error is not lost: the engine returns it from its next call.
void Operation::FinishIfOpen() {
  if (state_ != nullptr && state_->Open()) (void)Finish();
}

const std::byte* Operation::Weight(ParameterId id) const {
  if (state_ == nullptr || !state_->Open() || !state_->Has(id)) return nullptr;
  return (*state_->engine)->WeightOf(id);
}

absl::Status Operation::CopyWeight(ParameterId id, std::byte* to) const {
  if (Weight(id) != nullptr) return (*state_->engine)->CopyWeight(id, to, state_->stream);
  return absl::InvalidArgumentError(
      "CopyWeight: the operation has no weight of the parameter: the operation does not use it or "
      "has finished, or the gradient replaced the weight");
}

std::byte* Operation::Gradient(ParameterId id) {
  if (state_ == nullptr || !state_->Open() || !state_->Has(id)) return nullptr;
  return state_->pass == Pass::kBackward ? (*state_->engine)->GradientOf(id) : nullptr;
}

bool Operation::GradientAccumulates(ParameterId id) const {
  if (state_ == nullptr || !state_->Open() || !state_->Has(id)) return false;
  return (*state_->engine)->GradientAccumulates(id);
}

absl::Status Operation::GradientWritten(ParameterId id) {
  if (state_ == nullptr || !state_->Open()) {
    return absl::FailedPreconditionError(
        "GradientWritten on an operation that has finished; call it before Finish");
  }
  if (!state_->Has(id)) {
    return absl::InvalidArgumentError("GradientWritten for a parameter that the operation lacks");
  }
  if (state_->pass != Pass::kBackward) {
    return absl::FailedPreconditionError("GradientWritten in an operation that is not kBackward");
  }
  if (std::ranges::find(state_->written, id) != state_->written.end()) {
    return absl::FailedPreconditionError(
        "GradientWritten twice for one parameter of an operation; call it once, after all of the "
        "gradient is written");
  }
  absl::Status status = (*state_->engine)->GradientWritten(id);
  if (status.ok()) state_->written.push_back(id);
  return status;
}

absl::Status Operation::Finish() { return FinishOn(state_ == nullptr ? nullptr : state_->stream); }

absl::Status Operation::Finish(StreamHandle stream) {
  if (state_ == nullptr || *state_->engine == nullptr) return FinishOn(nullptr);
  GEMINID_ASSIGN_OR_RETURN(Stream* const on, (*state_->engine)->StreamOf(stream));
  return FinishOn(on);
}

absl::Status Operation::FinishOn(Stream* stream) {
  if (state_ == nullptr) {
    return absl::FailedPreconditionError("Finish on an operation that was moved from");
  }
  if (*state_->engine == nullptr && !state_->finished) {
    return absl::FailedPreconditionError("Finish on an operation whose engine has ended");
  }
  if (state_->finished) return absl::OkStatus();
  if (!state_->Open()) return (*state_->engine)->health();
  state_->finished = true;
  return (*state_->engine)->FinishOperation(state_->chunks, stream);
}

}  // namespace geminid::zero
