#include "training/ranks/model_place.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "training/nn/gpu_kernels.h"
#include "training/ranks/engine_source.h"

namespace geminid::trainer {

absl::StatusOr<std::unique_ptr<ModelPlace>> ModelPlace::Find(const Session& session,
                                                             Tokens tokens) {
  std::unique_ptr<ModelPlace> place(new ModelPlace);
  const DeviceDescription& device = session.device_description();
  if (device.kind != DeviceKind::kCuda) return place;
  GEMINID_ASSIGN_OR_RETURN(place->queue_, GpuQueue::Create(device.uuid));
  if (tokens == Tokens::kTogether) {
    GEMINID_ASSIGN_OR_RETURN(const int version, place->queue_->DriverVersion());
    place->products_ = kernels::MatmulLibrary::Load(version, &place->no_library_);
    place->attention_ = kernels::AttentionLibrary::Load(&place->no_attention_);
  }
  place->gpu_kernels_.emplace(
      GpuKernels(place->queue_.get(),
                 {.products = place->products_.get(), .attention = place->attention_.get()}));
  return place;
}

std::string ModelPlace::Products() const {
  if (!on_gpu()) return "kernels of our own";
  if (products_ == nullptr) {
    return absl::StrCat("kernels of our own, since there is no cuBLASLt: ", no_library_);
  }
  const size_t own = products_->unsupported_shapes();
  if (own == 0) return products_->Name();
  return absl::StrCat(products_->Name(), "; kernels of our own for ", own, " of ",
                      products_->shapes(), " shapes, for which cuBLASLt has no algorithm");
}

std::string ModelPlace::Attention() const {
  if (attention_ != nullptr) return attention_->Describe();
  if (!on_gpu()) return "a kernel of our own";
  return absl::StrCat("a kernel of our own, since there is no cuDNN: ", no_attention_);
}

std::unique_ptr<ParameterSource> ModelPlace::Source(zero::Engine* engine,
                                                    const Session* session) const {
  return on_gpu() ? MakeStreamSource(engine, queue_->handle()) : MakeEngineSource(engine, session);
}

}  // namespace geminid::trainer
