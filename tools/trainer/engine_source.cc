#include <utility>

#include "base/status_macros.h"
#include "tools/trainer/parameter_source.h"

namespace geminid::trainer {
namespace {

class EngineUse final : public ParameterUse {
 public:
  explicit EngineUse(zero::Operation operation) : operation_(std::move(operation)) {}

  const std::byte* Weight(zero::ParameterId id) const override { return operation_.Weight(id); }
  std::byte* Gradient(zero::ParameterId id) override { return operation_.Gradient(id); }
  bool GradientAccumulates(zero::ParameterId id) const override {
    return operation_.GradientAccumulates(id);
  }
  absl::Status GradientWritten(zero::ParameterId id) override {
    return operation_.GradientWritten(id);
  }
  absl::Status Finish() override { return operation_.Finish(); }

 private:
  zero::Operation operation_;
};

class EngineSource final : public ParameterSource {
 public:
  explicit EngineSource(zero::Engine* engine) : engine_(engine) {}

  absl::Status BeginMicroBatch() override { return engine_->BeginMicroBatch(); }
  absl::StatusOr<std::unique_ptr<ParameterUse>> Use(
      zero::Pass pass, std::span<const zero::ParameterId> parameters) override {
    GEMINID_ASSIGN_OR_RETURN(zero::Operation operation, engine_->Use(pass, parameters));
    return std::make_unique<EngineUse>(std::move(operation));
  }
  zero::Workspace& workspace() override { return engine_->workspace(); }

 private:
  zero::Engine* engine_;
};

}  // namespace

std::unique_ptr<ParameterSource> MakeEngineSource(zero::Engine* engine) {
  return std::make_unique<EngineSource>(engine);
}

}  // namespace geminid::trainer
