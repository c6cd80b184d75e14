#include "training/nn/parallel/sequence/visible_attention.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/status_macros.h"
#include "kernels/runtime/common/absl_status.h"

namespace geminid::collectives {
namespace {

using kernels::FromKernel;
using kernels::MatmulShape;
using kernels::Transpose;

// Replaces a row of scores by its softmax times `sum`; returns the logarithm of the sum.
double SoftmaxRow(float* row, size_t count, float scale, double* sum) {
  float best = row[0];
  for (size_t i = 1; i < count; ++i) best = std::max(best, row[i]);
  *sum = 0;
  for (size_t i = 0; i < count; ++i) {
    row[i] = std::exp(scale * (row[i] - best));
    *sum += static_cast<double>(row[i]);
  }
  return static_cast<double>(scale) * static_cast<double>(best) + std::log(*sum);
}

// log(exp(a) + exp(b)).
double LogOfSum(double a, double b) {
  return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
}

}  // namespace

absl::Status VisibleAttention::Multiply(const Room& room, const MatmulShape& shape, const float* a,
                                        const float* b, float* c) const {
  constexpr auto kPath = kernels::MatmulPath::kAuto;
  const size_t threads = pool_ == nullptr ? 1 : pool_->threads();
  size_t bytes = 0;
  GEMINID_RETURN_IF_ERROR(FromKernel(
      kernels::MatmulWorkspaceBytes<float, float>(shape, &bytes, kPath, threads), "matmul"));
  GEMINID_ASSIGN_OR_RETURN(const Memory::Block workspace,
                           room.memory->Allocate("a product of ring attention", bytes));
  return FromKernel(
      kernels::Matmul<float, float>(shape, a, b, nullptr, c, workspace.data(), bytes, kPath, pool_),
      "matmul");
}

absl::Status VisibleAttention::Scores(const Room& room, const HeadRows<const float>& a,
                                      const HeadRows<const float>& b, float* c) const {
  return Multiply(room,
                  {.m = a.rows,
                   .n = b.rows,
                   .k = head_dim_,
                   .transpose_b = Transpose::kYes,
                   .a_stride = a.stride,
                   .b_stride = b.stride},
                  a.data, b.data, c);
}

absl::Status VisibleAttention::Merge(const Room& room, const HeadRows<const float>& q,
                                     const HeadRows<const float>& k, const HeadRows<const float>& v,
                                     const HeadRows<float>& out, float* lse) const {
  for (size_t row = 0; row < q.rows; row += kTileRows) {
    const size_t count = std::min(kTileRows, q.rows - row);
    GEMINID_RETURN_IF_ERROR(
        MergeTile(room, q.From(row, count), k, v, out.From(row, count), lse + row));
  }
  return absl::OkStatus();
}

absl::Status VisibleAttention::MergeTile(const Room& room, const HeadRows<const float>& q,
                                         const HeadRows<const float>& k,
                                         const HeadRows<const float>& v, const HeadRows<float>& out,
                                         float* lse) const {
  float* const scores = room.scores.data();
  const float* const tile = room.beside.data();
  GEMINID_RETURN_IF_ERROR(Scores(room, q, k, scores));
  std::array<double, kTileRows> sums, logs;
  for (size_t r = 0; r < q.rows; ++r) {
    logs[r] = SoftmaxRow(&scores[r * k.rows], k.rows, scale_, &sums[r]);
  }
  GEMINID_RETURN_IF_ERROR(Multiply(room,
                                   {.m = q.rows, .n = head_dim_, .k = k.rows, .b_stride = v.stride},
                                   scores, v.data, room.beside.data()));
  for (size_t r = 0; r < q.rows; ++r) {
    const double merged = LogOfSum(lse[r], logs[r]);
    const auto before = static_cast<float>(std::exp(static_cast<double>(lse[r]) - merged));
    const auto here = static_cast<float>(std::exp(logs[r] - merged) / sums[r]);
    float* row = out.data + r * out.stride;
    for (size_t i = 0; i < head_dim_; ++i) {
      row[i] = row[i] * before + tile[r * head_dim_ + i] * here;
    }
    lse[r] = static_cast<float>(merged);
  }
  return absl::OkStatus();
}

absl::Status VisibleAttention::AddGradients(const Room& room, const Saved& saved,
                                            const HeadRows<const float>& k,
                                            const HeadRows<const float>& v,
                                            const HeadRows<float>& dq, const HeadRows<float>& dk,
                                            const HeadRows<float>& dv) const {
  for (size_t row = 0; row < saved.q.rows; row += kTileRows) {
    const size_t count = std::min(kTileRows, saved.q.rows - row);
    const Saved tile = {.q = saved.q.From(row, count),
                        .dout = saved.dout.From(row, count),
                        .lse = saved.lse + row,
                        .delta = saved.delta + row};
    GEMINID_RETURN_IF_ERROR(AddGradientsOfTile(room, tile, k, v, dq.From(row, count), dk, dv));
  }
  return absl::OkStatus();
}

// P = exp(scale Q K^T - lse); dS = scale P * (dO V^T - delta).
absl::Status VisibleAttention::AddGradientsOfTile(const Room& room, const Saved& saved,
                                                  const HeadRows<const float>& k,
                                                  const HeadRows<const float>& v,
                                                  const HeadRows<float>& dq,
                                                  const HeadRows<float>& dk,
                                                  const HeadRows<float>& dv) const {
  const size_t rows = saved.q.rows, keys = k.rows;
  float* const scores = room.scores.data();
  float* const dscores = room.beside.data();
  GEMINID_RETURN_IF_ERROR(Scores(room, saved.q, k, scores));
  GEMINID_RETURN_IF_ERROR(Scores(room, saved.dout, v, dscores));
  for (size_t r = 0; r < rows; ++r) {
    for (size_t i = r * keys; i < (r + 1) * keys; ++i) {
      scores[i] = std::exp(scale_ * scores[i] - saved.lse[r]);
      dscores[i] = scale_ * scores[i] * (dscores[i] - saved.delta[r]);
    }
  }
  MatmulShape of_queries = {.m = rows, .n = head_dim_, .k = keys, .accumulate = true};
  of_queries.b_stride = k.stride;
  of_queries.c_stride = dq.stride;
  GEMINID_RETURN_IF_ERROR(Multiply(room, of_queries, dscores, k.data, dq.data));
  MatmulShape of_keys = {.m = keys,
                         .n = head_dim_,
                         .k = rows,
                         .transpose_a = Transpose::kYes,
                         .accumulate = true,
                         .c_stride = dk.stride};
  of_keys.b_stride = saved.q.stride;
  GEMINID_RETURN_IF_ERROR(Multiply(room, of_keys, dscores, saved.q.data, dk.data));
  of_keys.b_stride = saved.dout.stride;
  return Multiply(room, of_keys, scores, saved.dout.data, dv.data);
}

}  // namespace geminid::collectives
