#include "tools/trainer/sequence_ring.h"

#include <utility>

#include "base/status_macros.h"
#include "kernels/runtime/common/bfloat16.h"
#include "tools/trainer/model_kernels.h"
#include "tools/trainer/workspace_memory.h"

namespace geminid::trainer {
namespace {

using collectives::FloatBlock;

constexpr char kWhat[] = "fp32 copies for a ring";

// The workspace is the host's.
absl::StatusOr<FloatBlock> Take(const Resources& resources, size_t count) {
  WorkspaceMemory memory(resources.workspace);
  return FloatBlock::Allocate(memory, kWhat, count);
}

template <typename T>
absl::StatusOr<FloatBlock> Widened(const Resources& resources, const T* values, size_t count) {
  GEMINID_ASSIGN_OR_RETURN(FloatBlock wide, Take(resources, count));
  GEMINID_RETURN_IF_ERROR(KernelsFor<T>(resources).Widen(resources, values, count, wide.data()));
  return wide;
}

template <typename T>
absl::Status Rounded(const Resources& resources, const FloatBlock& wide, Matrix<T> to) {
  return KernelsFor<T>(resources).Round(resources, wide.data(), wide.size(), to.data);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SequenceRing>> SequenceRing::Create(
    std::unique_ptr<collectives::Communicator> ranks, kernels::ThreadPool* threads) {
  GEMINID_ASSIGN_OR_RETURN(auto queue, collectives::AsyncCommunicator::Start(std::move(ranks)));
  return std::unique_ptr<SequenceRing>(new SequenceRing(std::move(queue), threads));
}

template <typename T>
absl::Status SequenceRing::AttentionForward(const Resources& resources,
                                            const kernels::AttentionShape& mine, Matrix<const T> q,
                                            Matrix<const T> k, Matrix<const T> v, Matrix<T> out,
                                            float* lse) {
  GEMINID_ASSIGN_OR_RETURN(const auto wide_q, Widened(resources, q.data, q.size()));
  GEMINID_ASSIGN_OR_RETURN(const auto wide_k, Widened(resources, k.data, k.size()));
  GEMINID_ASSIGN_OR_RETURN(const auto wide_v, Widened(resources, v.data, v.size()));
  GEMINID_ASSIGN_OR_RETURN(const auto wide_out, Take(resources, out.size()));
  WorkspaceMemory memory(resources.workspace);
  GEMINID_RETURN_IF_ERROR(attention_->Forward(memory, mine, wide_q.all(), wide_k.all(),
                                              wide_v.all(), wide_out.all(),
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
  GEMINID_ASSIGN_OR_RETURN(const auto wide_dq, Take(resources, dq.size()));
  GEMINID_ASSIGN_OR_RETURN(const auto wide_dk, Take(resources, dk.size()));
  GEMINID_ASSIGN_OR_RETURN(const auto wide_dv, Take(resources, dv.size()));
  WorkspaceMemory memory(resources.workspace);
  GEMINID_RETURN_IF_ERROR(attention_->Backward(memory, mine,
                                               {.q = q.all(),
                                                .k = k.all(),
                                                .v = v.all(),
                                                .out = out.all(),
                                                .lse = {saved.lse, dq.rows * mine.heads}},
                                               dout.all(), wide_dq.all(), wide_dk.all(),
                                               wide_dv.all()));
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
