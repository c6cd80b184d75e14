#include "training/nn/sequence_ring.h"

#include <span>
#include <type_traits>
#include <utility>

#include "base/status_macros.h"
#include "kernels/runtime/common/bfloat16.h"
#include "training/nn/gpu_axis_ranks.h"
#include "training/nn/gpu_layer_math.h"
#include "training/nn/model_kernels.h"
#include "training/nn/parallel/host_layer_math.h"
#include "training/nn/workspace_memory.h"

namespace geminid::trainer {
namespace {

using collectives::FloatBlock;

// A matrix in fp32: itself, or a copy in the workspace.
template <typename Float>
struct Wide {
  FloatBlock copy;
  std::span<Float> values;
};

absl::StatusOr<FloatBlock> Take(const Resources& resources, size_t count) {
  WorkspaceMemory memory(resources.workspace);
  return FloatBlock::Allocate(memory, "fp32 copies for a ring", count);
}

template <typename T>
absl::StatusOr<Wide<const float>> Widened(const Resources& resources, const T* values,
                                          size_t count) {
  if constexpr (std::is_same_v<T, float>) {
    return Wide<const float>{{}, {values, count}};
  } else {
    GEMINID_ASSIGN_OR_RETURN(FloatBlock copy, Take(resources, count));
    GEMINID_RETURN_IF_ERROR(KernelsFor<T>(resources).Widen(resources, values, count, copy.data()));
    const std::span<const float> all = copy.all();
    return Wide<const float>{std::move(copy), all};
  }
}

// Memory for the fp32 values that Rounded then copies to the matrix.
template <typename T>
absl::StatusOr<Wide<float>> RoomFor(const Resources& resources, Matrix<T> matrix) {
  if constexpr (std::is_same_v<T, float>) {
    return Wide<float>{{}, {matrix.data, matrix.size()}};
  } else {
    GEMINID_ASSIGN_OR_RETURN(FloatBlock copy, Take(resources, matrix.size()));
    const std::span<float> all = copy.all();
    return Wide<float>{std::move(copy), all};
  }
}

template <typename T>
absl::Status Rounded(const Resources& resources, const Wide<float>& wide, Matrix<T> to) {
  if constexpr (std::is_same_v<T, float>) {
    return absl::OkStatus();  // the values are already there
  } else {
    return KernelsFor<T>(resources).Round(resources, wide.values.data(), wide.values.size(),
                                          to.data);
  }
}

class HostRing final : public SequenceRing {
 public:
  HostRing(std::unique_ptr<collectives::AsyncCommunicator> ranks, kernels::ThreadPool* threads)
      : SequenceRing(std::make_unique<collectives::HostRingRanks>(*ranks)),
        threads_(threads),
        queue_(std::move(ranks)) {}

 private:
  std::unique_ptr<collectives::LayerMath> MathOf(const Resources& /*resources*/,
                                                 collectives::Memory& memory) const override {
    return collectives::MakeHostLayerMath(threads_, memory);
  }

  kernels::ThreadPool* const threads_;
  const std::unique_ptr<collectives::AsyncCommunicator> queue_;
};

class GpuRingRanks final : public collectives::RingRanks {
 public:
  GpuRingRanks(collectives::Communicator& ranks, std::unique_ptr<GpuAxisRanks> gpus)
      : ranks_(ranks), gpus_(std::move(gpus)) {}

  int Rank() const override { return ranks_.Rank(); }
  int WorldSize() const override { return ranks_.WorldSize(); }
  Pending Pass(collectives::ConstBuffer here, collectives::Buffer coming) override {
    return Pending(gpus_->SendReceive(here, next(), coming, previous()));
  }
  void Abort(const std::string& reason) override { gpus_->Abort(reason); }

 private:
  collectives::Communicator& ranks_;
  const std::unique_ptr<GpuAxisRanks> gpus_;
};

class GpuRing final : public SequenceRing {
 public:
  GpuRing(std::unique_ptr<GpuRingRanks> ranks, GpuQueue& queue)
      : SequenceRing(std::move(ranks)), queue_(queue) {}

 private:
  std::unique_ptr<collectives::LayerMath> MathOf(const Resources& resources,
                                                 collectives::Memory& /*memory*/) const override {
    std::unique_ptr<GpuLayerMath> math = GpuLayerMath::Make(resources.math, queue_);
    math->Bind(resources.workspace);
    return math;
  }

  GpuQueue& queue_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SequenceRing>> SequenceRing::Create(
    std::unique_ptr<collectives::Communicator> ranks, kernels::ThreadPool* threads) {
  GEMINID_ASSIGN_OR_RETURN(auto queue, collectives::AsyncCommunicator::Start(std::move(ranks)));
  return std::make_unique<HostRing>(std::move(queue), threads);
}

std::unique_ptr<SequenceRing> SequenceRing::OnGpu(
    collectives::Communicator& ranks, std::unique_ptr<collectives::Communicator> devices,
    GpuQueue& queue, collectives::Memory& memory) {
  auto gpus = std::make_unique<GpuAxisRanks>(ranks, std::move(devices), queue, memory);
  return std::make_unique<GpuRing>(std::make_unique<GpuRingRanks>(ranks, std::move(gpus)), queue);
}

template <typename T>
absl::Status SequenceRing::AttentionForward(const Resources& resources,
                                            const kernels::AttentionShape& mine, Matrix<const T> q,
                                            Matrix<const T> k, Matrix<const T> v, Matrix<T> out,
                                            float* lse) {
  GEMINID_ASSIGN_OR_RETURN(const auto wide_q, Widened(resources, q.data, q.size()));
  GEMINID_ASSIGN_OR_RETURN(const auto wide_k, Widened(resources, k.data, k.size()));
  GEMINID_ASSIGN_OR_RETURN(const auto wide_v, Widened(resources, v.data, v.size()));
  GEMINID_ASSIGN_OR_RETURN(const auto wide_out, RoomFor(resources, out));
  WorkspaceMemory memory(resources.workspace);
  const auto math = MathOf(resources, memory);
  GEMINID_RETURN_IF_ERROR(attention_->Forward({*math, memory}, mine, wide_q.values, wide_k.values,
                                              wide_v.values, wide_out.values,
                                              {lse, q.rows * mine.heads}));
  return Rounded(resources, wide_out, out);
}

template <typename T>
absl::Status SequenceRing::AttentionBackward(const Resources& resources,
                                             const kernels::AttentionShape& mine,
                                             const kernels::AttentionSaved<T>& saved, Matrix<T> dq,
                                             Matrix<T> dk, Matrix<T> dv) {
  GEMINID_ASSIGN_OR_RETURN(const auto q, Widened(resources, saved.q.data, dq.size()));
  GEMINID_ASSIGN_OR_RETURN(const auto k, Widened(resources, saved.k.data, dk.size()));
  GEMINID_ASSIGN_OR_RETURN(const auto v, Widened(resources, saved.v.data, dv.size()));
  GEMINID_ASSIGN_OR_RETURN(const auto out, Widened(resources, saved.out.data, dq.size()));
  GEMINID_ASSIGN_OR_RETURN(const auto dout, Widened(resources, saved.dout.data, dq.size()));
  GEMINID_ASSIGN_OR_RETURN(const auto wide_dq, RoomFor(resources, dq));
  GEMINID_ASSIGN_OR_RETURN(const auto wide_dk, RoomFor(resources, dk));
  GEMINID_ASSIGN_OR_RETURN(const auto wide_dv, RoomFor(resources, dv));
  WorkspaceMemory memory(resources.workspace);
  const auto math = MathOf(resources, memory);
  GEMINID_RETURN_IF_ERROR(attention_->Backward({*math, memory}, mine,
                                               {.q = q.values,
                                                .k = k.values,
                                                .v = v.values,
                                                .out = out.values,
                                                .lse = {saved.lse, dq.rows * mine.heads}},
                                               dout.values, wide_dq.values, wide_dk.values,
                                               wide_dv.values));
  GEMINID_RETURN_IF_ERROR(Rounded(resources, wide_dq, dq));
  GEMINID_RETURN_IF_ERROR(Rounded(resources, wide_dk, dk));
  return Rounded(resources, wide_dv, dv);
}

#define GEMINID_INSTANTIATE(T)                                                             \
  template absl::Status SequenceRing::AttentionForward(                                    \
      const Resources&, const kernels::AttentionShape&, Matrix<const T>, Matrix<const T>,  \
      Matrix<const T>, Matrix<T>, float*);                                                 \
  template absl::Status SequenceRing::AttentionBackward(                                   \
      const Resources&, const kernels::AttentionShape&, const kernels::AttentionSaved<T>&, \
      Matrix<T>, Matrix<T>, Matrix<T>);
GEMINID_INSTANTIATE(float)
GEMINID_INSTANTIATE(kernels::BFloat16)
#undef GEMINID_INSTANTIATE

}  // namespace geminid::trainer
