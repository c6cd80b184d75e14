#include <utility>

#include "client/zero/engine_impl.h"

namespace geminid::zero {

Operation::Operation(std::unique_ptr<State> state) : state_(std::move(state)) {}
Operation::Operation(Operation&&) noexcept = default;

Operation& Operation::operator=(Operation&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

Operation::~Operation() {
  // The engine remembers an error and returns it from its next call.
  if (state_ != nullptr) (void)Finish();
}

const std::byte* Operation::Weight(ParameterId id) const { return state_->engine->AddressOf(id); }

std::byte* Operation::Gradient(ParameterId id) {
  return const_cast<std::byte*>(state_->engine->AddressOf(id));
}

bool Operation::GradientAccumulates(ParameterId id) const {
  return state_->engine->GradientAccumulates(id);
}

absl::Status Operation::GradientWritten(ParameterId id) {
  return state_->engine->GradientWritten(state_->pass, id);
}

absl::Status Operation::Finish() {
  if (state_->finished) return absl::OkStatus();
  state_->finished = true;
  return state_->engine->FinishOperation(state_->pass, state_->parameters, state_->chunks);
}

}  // namespace geminid::zero
