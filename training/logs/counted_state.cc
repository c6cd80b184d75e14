#include "training/logs/counted_state.h"

#include <utility>

#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

class CountedSink final : public zero::SnapshotSink {
 public:
  CountedSink(std::shared_ptr<zero::SnapshotSink> sink,
              std::shared_ptr<std::atomic<uint64_t>> elements)
      : sink_(std::move(sink)), elements_(std::move(elements)) {}

  absl::Status Write(zero::ParameterId id, zero::StateKind kind, uint64_t offset,
                     std::span<const float> values) override {
    GEMINID_RETURN_IF_ERROR(sink_->Write(id, kind, offset, values));
    *elements_ += values.size();
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<zero::SnapshotSink> sink_;
  const std::shared_ptr<std::atomic<uint64_t>> elements_;
};

PhaseProgress Bytes(uint64_t elements, uint64_t of) {
  return {.done = elements * sizeof(float), .of = of * sizeof(float)};
}

}  // namespace

CountedState::CountedState(zero::ModelState* state, const std::vector<zero::Parameter>& parameters)
    : state_(state), saved_elements_(std::make_shared<std::atomic<uint64_t>>(0)) {
  for (uint32_t i = 0; i < parameters.size(); ++i) {
    const zero::ParameterId id{i};
    uint64_t elements = 1;
    for (const int64_t dimension : parameters[i].shape) {
      elements *= static_cast<uint64_t>(dimension);
    }
    model_elements_ += elements;
    uint64_t mine = 0;
    for (const zero::ShardRange& range : state->ShardOf(id)) mine += range.elements;
    value_elements_ += mine;
    for (const zero::StateKind kind : zero::kStateKinds) {
      if (state->HasState(id, kind)) state_elements_ += mine;
    }
  }
}

PhaseProgress CountedState::Loaded(Kinds kinds) const {
  return Bytes(moved_elements_, kinds == Kinds::kAll ? state_elements_ : value_elements_);
}

PhaseProgress CountedState::Passed() const { return Bytes(moved_elements_, model_elements_); }

PhaseProgress CountedState::Saved() const { return Bytes(*saved_elements_, state_elements_); }

absl::Status CountedState::Initialize(const Fill& fill) {
  return state_->Initialize([&](zero::ParameterId id, std::span<float> values) -> absl::Status {
    GEMINID_RETURN_IF_ERROR(fill(id, values));
    moved_elements_ += values.size();
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<float>> CountedState::ReadParameter(zero::ParameterId id) {
  GEMINID_ASSIGN_OR_RETURN(std::vector<float> values, state_->ReadParameter(id));
  moved_elements_ += values.size();
  return values;
}

absl::Status CountedState::WriteShard(zero::ParameterId id, zero::StateKind kind, uint64_t offset,
                                      std::span<const float> values) {
  GEMINID_RETURN_IF_ERROR(state_->WriteShard(id, kind, offset, values));
  moved_elements_ += values.size();
  return absl::OkStatus();
}

absl::Status CountedState::StartSnapshot(std::shared_ptr<zero::SnapshotSink> sink) {
  *saved_elements_ = 0;
  snapshot_began_ = std::chrono::steady_clock::now();
  return state_->StartSnapshot(std::make_shared<CountedSink>(std::move(sink), saved_elements_));
}

absl::Status CountedState::WaitSnapshot() {
  GEMINID_RETURN_IF_ERROR(state_->WaitSnapshot());
  snapshot_seconds_ =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - snapshot_began_).count();
  return absl::OkStatus();
}

}  // namespace geminid::trainer
