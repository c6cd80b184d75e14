#include "training/nn/gpu_attention.h"

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpu/driver_calls.h"
#include "gpu/library_search.h"
#include "kernels/runtime/common/absl_status.h"

namespace geminid::trainer {
namespace {

using kernels::AttentionPlan;

absl::Status DoWithout(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, "; to run without cuDNN set ",
                                             gpu::kCudnnPathVariable, "=", gpu::kNoLibrary));
}

}  // namespace

absl::StatusOr<AttentionPlan*> GpuAttention::PlanFor(const Resources& resources,
                                                     const kernels::AttentionShape& shape) const {
  if (library_ == nullptr || resources.rows_alone) return nullptr;
  AttentionPlan& plan = library_->Plan(shape);
  if (plan.state == AttentionPlan::State::kUntested) {
    GEMINID_ASSIGN_OR_RETURN(auto scratch,
                             Scratch<std::byte>::Allocate(resources, plan.test_bytes));
    std::string why;
    const gpu::DriverCall call;
    const kernels::Status status =
        library_->Test(shape, plan, scratch.data(), queue_.stream(), &why);
    if (status == kernels::Status::kUnsupported) return DoWithout(why);
    GEMINID_RETURN_IF_ERROR(kernels::FromKernel(status, "Attention"));
  }
  return plan.state == AttentionPlan::State::kTaken ? &plan : nullptr;
}

absl::Status GpuAttention::Passed(kernels::Status status) const {
  if (status != kernels::Status::kUnsupported) return kernels::FromKernel(status, "Attention");
  return DoWithout(
      absl::StrCat(library_->Name(), " refused attention: ", library_->last_refusal()));
}

absl::StatusOr<bool> GpuAttention::Forward(const Resources& resources,
                                           const kernels::AttentionShape& shape, const Read& q,
                                           const Read& k, const Read& v, const Written& out,
                                           float* lse) const {
  const auto dense = [&](const auto& view, size_t heads) {
    return kernels::IsDense(view, heads, shape.head_dim);
  };
  if (!dense(q, shape.heads) || !dense(out, shape.heads) || !dense(k, shape.kv_heads) ||
      !dense(v, shape.kv_heads)) {
    return false;
  }
  GEMINID_ASSIGN_OR_RETURN(AttentionPlan* const plan, PlanFor(resources, shape));
  if (plan == nullptr) return false;
  GEMINID_ASSIGN_OR_RETURN(auto scratch,
                           Scratch<std::byte>::Allocate(resources, plan->forward_bytes));
  const gpu::DriverCall call;
  GEMINID_RETURN_IF_ERROR(Passed(library_->Forward(shape, *plan, q.data, k.data, v.data, out.data,
                                                   lse, scratch.data(), queue_.stream())));
  return true;
}

absl::StatusOr<bool> GpuAttention::Backward(const Resources& resources,
                                            const kernels::AttentionShape& shape,
                                            const kernels::AttentionSaved<Element>& saved,
                                            const Written& dq, const Written& dk,
                                            const Written& dv) const {
  const auto dense = [&](const auto& view, size_t heads) {
    return kernels::IsDense(view, heads, shape.head_dim);
  };
  if (!dense(saved.q, shape.heads) || !dense(saved.out, shape.heads) ||
      !dense(saved.dout, shape.heads) || !dense(dq, shape.heads) ||
      !dense(saved.k, shape.kv_heads) || !dense(saved.v, shape.kv_heads) ||
      !dense(dk, shape.kv_heads) || !dense(dv, shape.kv_heads)) {
    return false;
  }
  GEMINID_ASSIGN_OR_RETURN(AttentionPlan* const plan, PlanFor(resources, shape));
  if (plan == nullptr) return false;
  GEMINID_ASSIGN_OR_RETURN(auto scratch,
                           Scratch<std::byte>::Allocate(resources, plan->backward_bytes));
  const gpu::DriverCall call;
  GEMINID_RETURN_IF_ERROR(
      Passed(library_->Backward(shape, *plan, saved, {.dq = dq.data, .dk = dk.data, .dv = dv.data},
                                scratch.data(), queue_.stream())));
  return true;
}

}  // namespace geminid::trainer
