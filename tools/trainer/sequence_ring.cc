#include "tools/trainer/sequence_ring.h"

#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "kernels/runtime/common/bfloat16.h"
#include "tools/trainer/model_kernels.h"

namespace geminid::trainer {
namespace {

template <typename T>
absl::StatusOr<std::vector<float>> Widened(const Resources& resources, const T* values,
                                           size_t count) {
  std::vector<float> wide(count);
  GEMINID_RETURN_IF_ERROR(KernelsFor<T>(resources).Widen(resources, values, count, wide.data()));
  return wide;
}

template <typename T>
absl::Status Rounded(const Resources& resources, const std::vector<float>& wide, Matrix<T> to) {
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
  std::vector<float> wide_out(out.size());
  GEMINID_RETURN_IF_ERROR(
      attention_->Forward(mine, wide_q, wide_k, wide_v, wide_out, {lse, q.rows * mine.heads}));
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
  std::vector<float> wide_dq(dq.size()), wide_dk(dk.size()), wide_dv(dv.size());
  GEMINID_RETURN_IF_ERROR(attention_->Backward(
      mine, {.q = q, .k = k, .v = v, .out = out, .lse = {saved.lse, dq.rows * mine.heads}}, dout,
      wide_dq, wide_dk, wide_dv));
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
