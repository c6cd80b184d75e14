#include "training/nn/part_source.h"

#include <utility>

#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

using zero::ParameterId;

class PartUse final : public ParameterUse {
 public:
  PartUse(std::unique_ptr<ParameterUse> use, const std::vector<ParameterId>& ids)
      : use_(std::move(use)), ids_(ids) {}

  const std::byte* Weight(ParameterId id) const override { return use_->Weight(Of(id)); }
  std::byte* Gradient(ParameterId id) override { return use_->Gradient(Of(id)); }
  bool GradientAccumulates(ParameterId id) const override {
    return use_->GradientAccumulates(Of(id));
  }
  absl::Status GradientWritten(ParameterId id) override { return use_->GradientWritten(Of(id)); }
  absl::Status Finish() override { return use_->Finish(); }

 private:
  ParameterId Of(ParameterId id) const { return ids_[static_cast<size_t>(id)]; }

  const std::unique_ptr<ParameterUse> use_;
  const std::vector<ParameterId>& ids_;
};

class PartSource final : public ParameterSource {
 public:
  PartSource(ParameterSource* all, std::vector<ParameterId> ids)
      : all_(all), ids_(std::move(ids)) {}

  absl::Status BeginMicroBatch() override { return all_->BeginMicroBatch(); }
  absl::StatusOr<std::unique_ptr<ParameterUse>> Use(
      zero::Pass pass, std::span<const ParameterId> parameters) override {
    std::vector<ParameterId> named;
    named.reserve(parameters.size());
    for (const ParameterId id : parameters) named.push_back(ids_[static_cast<size_t>(id)]);
    GEMINID_ASSIGN_OR_RETURN(auto use, all_->Use(pass, named));
    return std::make_unique<PartUse>(std::move(use), ids_);
  }
  zero::Workspace& workspace() override { return all_->workspace(); }

 private:
  ParameterSource* const all_;
  const std::vector<ParameterId> ids_;
};

}  // namespace

std::unique_ptr<ParameterSource> MakePartSource(ParameterSource* all,
                                                std::vector<ParameterId> ids) {
  return std::make_unique<PartSource>(all, std::move(ids));
}

}  // namespace geminid::trainer
