#include "training/nn/wide_source.h"

#include <map>
#include <utility>

#include "base/status_macros.h"
#include "kernels/runtime/common/bfloat16.h"
#include "training/nn/model_kernels.h"
#include "training/nn/scratch.h"

namespace geminid::trainer {
namespace {

using kernels::BFloat16;
using zero::ParameterId;
using zero::Pass;

class WideUse final : public ParameterUse {
 public:
  WideUse(std::unique_ptr<ParameterUse> narrow, const std::vector<ParameterSpec>& specs,
          zero::Workspace& workspace)
      : narrow_(std::move(narrow)), specs_(specs), resources_{workspace, HostKernels()} {}

  absl::Status Widen(Pass pass, std::span<const ParameterId> parameters) {
    for (const ParameterId id : parameters) {
      const ParameterSpec& spec = specs_[static_cast<size_t>(id)];
      if (spec.data_type == zero::DataType::kFloat32) continue;
      GEMINID_ASSIGN_OR_RETURN(auto values, Scratch<float>::Allocate(resources_, spec.elements()));
      // An accumulating gradient has already overwritten its weight.
      const bool adds = pass == Pass::kBackward && narrow_->GradientAccumulates(id);
      const std::byte* const from = adds ? narrow_->Gradient(id) : narrow_->Weight(id);
      GEMINID_RETURN_IF_ERROR(KernelsFor<BFloat16>(resources_)
                                  .Widen(resources_, reinterpret_cast<const BFloat16*>(from),
                                         spec.elements(), values.data()));
      wide_.emplace(id, std::move(values));
    }
    return absl::OkStatus();
  }

  const std::byte* Weight(ParameterId id) const override {
    const auto found = wide_.find(id);
    return found == wide_.end() ? narrow_->Weight(id) : Bytes(found->second);
  }
  std::byte* Gradient(ParameterId id) override {
    std::byte* const gradient = narrow_->Gradient(id);
    const auto found = wide_.find(id);
    return found == wide_.end() || gradient == nullptr ? gradient : Bytes(found->second);
  }
  bool GradientAccumulates(ParameterId id) const override {
    return narrow_->GradientAccumulates(id);
  }
  absl::Status GradientWritten(ParameterId id) override {
    if (const auto found = wide_.find(id); found != wide_.end()) {
      GEMINID_RETURN_IF_ERROR(KernelsFor<BFloat16>(resources_)
                                  .Round(resources_, found->second.data(),
                                         specs_[static_cast<size_t>(id)].elements(),
                                         reinterpret_cast<BFloat16*>(narrow_->Gradient(id))));
    }
    return narrow_->GradientWritten(id);
  }
  absl::Status Finish() override {
    wide_.clear();
    return narrow_->Finish();
  }

 private:
  static std::byte* Bytes(const Scratch<float>& values) {
    return reinterpret_cast<std::byte*>(values.data());
  }

  const std::unique_ptr<ParameterUse> narrow_;
  const std::vector<ParameterSpec>& specs_;
  const Resources resources_;
  std::map<ParameterId, Scratch<float>> wide_;
};

class WideSource final : public ParameterSource {
 public:
  WideSource(std::unique_ptr<ParameterSource> narrow, std::vector<ParameterSpec> specs)
      : narrow_(std::move(narrow)), specs_(std::move(specs)) {}

  absl::Status BeginMicroBatch() override { return narrow_->BeginMicroBatch(); }
  absl::StatusOr<std::unique_ptr<ParameterUse>> Use(
      Pass pass, std::span<const ParameterId> parameters) override {
    GEMINID_ASSIGN_OR_RETURN(auto narrow, narrow_->Use(pass, parameters));
    auto use = std::make_unique<WideUse>(std::move(narrow), specs_, narrow_->workspace());
    GEMINID_RETURN_IF_ERROR(use->Widen(pass, parameters));
    return use;
  }
  zero::Workspace& workspace() override { return narrow_->workspace(); }

 private:
  const std::unique_ptr<ParameterSource> narrow_;
  const std::vector<ParameterSpec> specs_;
};

}  // namespace

std::unique_ptr<ParameterSource> MakeWideSource(std::unique_ptr<ParameterSource> narrow,
                                                std::vector<ParameterSpec> specs) {
  return std::make_unique<WideSource>(std::move(narrow), std::move(specs));
}

}  // namespace geminid::trainer
