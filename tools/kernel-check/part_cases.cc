// Kernels of layers over a grid of ranks: norms and the cross-entropy of rows whose columns are
// sharded, and transposed matrices.
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/model/cross_entropy/cross_entropy.h"
#include "kernels/model/cross_entropy/cross_entropy_part.h"
#include "kernels/model/cross_entropy/cross_entropy_part_cuda.h"
#include "kernels/model/elementwise/bias.h"
#include "kernels/model/elementwise/bias_cuda.h"
#include "kernels/model/elementwise/transpose.h"
#include "kernels/model/elementwise/transpose_cuda.h"
#include "kernels/model/normalisation/norm_part.h"
#include "kernels/model/normalisation/norm_part_cuda.h"
#include "kernels/runtime/simd/arguments.h"
#include "tools/kernel-check/trial.h"

namespace geminid::kernel_check {
namespace {

using kernels::BFloat16;
using kernels::CrossEntropyPart;
using kernels::NormPart;

// fp32 sums in another order, relative to the largest sum.
constexpr double kSumTolerance = 1e-5;
// For an exponential of another library, rounded to fp32.
constexpr double kFunctionTolerance = 1e-6;

struct Rows {
  size_t rows;
  size_t cols;
  size_t shift;  // elements before a word
  bool shifts;   // a layer norm, which has means and beta; else an RMS norm

  size_t count() const { return rows * cols; }
  NormPart part() const { return {rows, cols}; }
};
// One element, warps without a row, tails of packs, chunks of rows, unaligned arrays, the widest
// row of a warp, rows wider than a thread holds.
constexpr Rows kRows[] = {{1, 1, 0, true},    {3, 5, 1, true},    {9, 64, 0, false},
                          {7, 1000, 0, true}, {5, 4100, 1, true}, {70, 33, 0, false},
                          {200, 96, 0, true}, {2, 1024, 0, true}, {2, 2056, 0, false},
                          {1, 9000, 0, true}};
constexpr Rows kTimedRows = {8192, 4096, 0, true};

using RowsCheck = void (*)(Trial&, const Rows&);

KernelCase OverRows(const char* name, RowsCheck check) {
  KernelCase one;
  one.name = name;
  for (const Rows& rows : kRows) {
    one.compared.emplace_back([check, rows](Trial& trial) { check(trial, rows); });
  }
  one.timed = [check](Trial& trial) { check(trial, kTimedRows); };
  return one;
}

// Numbers of each row: means around 0, or reciprocals of deviations, which are positive.
HostDeviceArray<float> NumbersOfRows(Trial& trial, const Rows& r, uint64_t seed,
                                     bool positive = false) {
  std::vector<float> values = RandomArray<float>(r.rows, seed, 0.5F);
  for (float& value : values) value += positive ? 1.0F : 0.0F;
  return trial.In(std::move(values));
}
// Null where the norm is an RMS norm.
HostDeviceArray<float> Means(Trial& trial, const Rows& r, uint64_t seed) {
  return r.shifts ? NumbersOfRows(trial, r, seed) : HostDeviceArray<float>{};
}

void CheckSum(Trial& trial, const Rows& r) {
  const auto x = trial.In(RandomArray<float>(r.count(), 1), r.shift);
  const auto sum = trial.Out("sum", std::vector<float>(r.rows));
  trial.Run([&] { return kernels::NormPartSum(r.part(), x.host, sum.host); },
            [&] { return kernels::NormPartSumCuda(r.part(), x.device, sum.device, nullptr); });
}

void CheckSquares(Trial& trial, const Rows& r) {
  const auto x = trial.In(RandomArray<float>(r.count(), 2), r.shift);
  const auto mean = Means(trial, r, 3);
  const auto sum = trial.Out("squares", std::vector<float>(r.rows));
  trial.Run([&] { return kernels::NormPartSquares(r.part(), x.host, mean.host, sum.host); },
            [&] {
              return kernels::NormPartSquaresCuda(r.part(), x.device, mean.device, sum.device,
                                                  nullptr);
            });
}

void CheckMeans(Trial& trial, const Rows& r) {
  const auto sums = trial.Out("means", RandomArray<float>(r.rows, 4), r.shift, 0, 2);
  trial.Run([&] { return kernels::NormPartMeans(r.rows, r.cols, sums.host); },
            [&] { return kernels::NormPartMeansCuda(r.rows, r.cols, sums.device, nullptr); });
}

void CheckInverseRoots(Trial& trial, const Rows& r) {
  std::vector<float> squares = RandomArray<float>(r.rows, 5);
  for (float& square : squares) square *= square;
  const auto values = trial.Out("rstd", std::move(squares), r.shift, 0, 2);
  constexpr float kEpsilon = 1e-5F;
  trial.Run(
      [&] { return kernels::NormPartInverseRoots(r.rows, kEpsilon, values.host); },
      [&] { return kernels::NormPartInverseRootsCuda(r.rows, kEpsilon, values.device, nullptr); });
}

void CheckForward(Trial& trial, const Rows& r) {
  const auto x = trial.Out("y", RandomArray<float>(r.count(), 6), r.shift, 0, 2);  // in place
  const auto mean = Means(trial, r, 7);
  const auto rstd = NumbersOfRows(trial, r, 8, /*positive=*/true);
  const auto gamma = trial.In(RandomArray<float>(r.cols, 9), r.shift);
  const auto beta =
      r.shifts ? trial.In(RandomArray<float>(r.cols, 10), r.shift) : HostDeviceArray<float>{};
  trial.Run(
      [&] {
        return kernels::NormPartForward(r.part(), x.host, mean.host, rstd.host, gamma.host,
                                        beta.host, x.host);
      },
      [&] {
        return kernels::NormPartForwardCuda(r.part(), x.device, mean.device, rstd.device,
                                            gamma.device, beta.device, x.device, nullptr);
      });
}

// What both halves of the backward pass read, on either side.
struct Backward {
  Backward(Trial& trial, const Rows& r, const HostDeviceArray<float>& above) {
    const auto x = trial.In(RandomArray<float>(r.count(), 11), r.shift);
    const auto gamma = trial.In(RandomArray<float>(r.cols, 12), r.shift);
    const auto mean = Means(trial, r, 13);
    const auto rstd = NumbersOfRows(trial, r, 14, /*positive=*/true);
    host = {above.host, x.host, gamma.host, mean.host, rstd.host};
    device = {above.device, x.device, gamma.device, mean.device, rstd.device};
  }
  kernels::NormPartBackwardArgs host, device;
};

void CheckGradientSums(Trial& trial, const Rows& r) {
  const auto dy = trial.In(RandomArray<float>(r.count(), 15), r.shift);
  const Backward args(trial, r, dy);
  const auto of_products = trial.Out("sum_gx", std::vector<float>(r.rows));
  const auto of_sums =
      r.shifts ? trial.Out("sum_g", std::vector<float>(r.rows)) : HostDeviceArray<float>{};
  trial.Run(
      [&] {
        return kernels::NormPartGradientSums(r.part(), args.host, of_products.host, of_sums.host);
      },
      [&] {
        return kernels::NormPartGradientSumsCuda(r.part(), args.device, of_products.device,
                                                 of_sums.device, nullptr);
      });
}

void CheckBackward(Trial& trial, const Rows& r) {
  const auto dx = trial.Out("dx", RandomArray<float>(r.count(), 16), r.shift, 0, 2);  // also dy
  const Backward args(trial, r, dx);
  const auto mean_gx = NumbersOfRows(trial, r, 17);
  const auto mean_g = Means(trial, r, 18);
  const auto dgamma = trial.Out("dgamma", std::vector<float>(r.cols), r.shift, kSumTolerance);
  const auto dbeta = r.shifts
                         ? trial.Out("dbeta", std::vector<float>(r.cols), r.shift, kSumTolerance)
                         : HostDeviceArray<float>{};
  const size_t bytes = kernels::NormPartCudaWorkspaceBytes(r.part());
  void* const workspace = trial.Workspace(bytes);
  const size_t host_bytes = kernels::NormPartWorkspaceBytes(r.part());
  std::vector<std::byte> room(host_bytes + kernels::kWorkspaceAlignment);
  const auto at = reinterpret_cast<uintptr_t>(room.data());
  std::byte* const aligned =
      room.data() + (kernels::RoundUpTo(at, kernels::kWorkspaceAlignment) - at);
  trial.Run(
      [&] {
        return kernels::NormPartBackward(r.part(), args.host, mean_gx.host, mean_g.host,
                                         {dx.host, dgamma.host, dbeta.host}, aligned, host_bytes);
      },
      [&] {
        return kernels::NormPartBackwardCuda(r.part(), args.device, mean_gx.device, mean_g.device,
                                             {dx.device, dgamma.device, dbeta.device}, workspace,
                                             bytes, nullptr);
      });
}

// --- the cross-entropy -------------------------------------------------------------------------

// A part without columns, one of some columns with padding, one of many sums.
constexpr CrossEntropyPart kParts[] = {
    {3, 0, 7, 2}, {1, 1, 0, 1}, {7, 300, 500, 311}, {270, 17, 4, 17}, {3, 40000, 40000, 40000}};
constexpr CrossEntropyPart kTimedPart = {2048, 25129, 25129, 25152};

// Targets in the part, before it and behind it, and none.
std::vector<int32_t> Targets(const CrossEntropyPart& part) {
  const size_t words = part.first_column + part.columns + 5;
  std::vector<int32_t> targets(part.tokens);
  for (size_t t = 0; t < part.tokens; ++t) {
    targets[t] = t % 5 == 3 ? kernels::kIgnoredTarget : static_cast<int32_t>(t * 7919 % words);
  }
  if (part.columns > 0) targets[0] = static_cast<int32_t>(part.first_column);
  return targets;
}

std::vector<float> Logits(const CrossEntropyPart& part) {
  return RandomArray<float>(part.tokens * part.row_stride, 19, 6.0F);
}
// As large as the largest logit, or larger, as another part may have it.
HostDeviceArray<float> Largest(Trial& trial, const CrossEntropyPart& part) {
  return trial.In(std::vector<float>(part.tokens, 6.5F));
}

void CheckMax(Trial& trial, const CrossEntropyPart& part) {
  const auto logits = trial.In(Logits(part));
  const auto max = trial.Out("max", std::vector<float>(part.tokens));
  trial.Run(
      [&] { return kernels::CrossEntropyPartMax(part, logits.host, max.host); },
      [&] { return kernels::CrossEntropyPartMaxCuda(part, logits.device, max.device, nullptr); });
}

void CheckSums(Trial& trial, const CrossEntropyPart& part) {
  const auto logits = trial.In(Logits(part));
  const auto targets = trial.In(Targets(part));
  const auto max = Largest(trial, part);
  const auto sums = trial.Out("sums", std::vector<float>(part.tokens));
  const auto at_target = trial.Out("at_target", std::vector<float>(part.tokens));
  trial.Run(
      [&] {
        return kernels::CrossEntropyPartSums(part, logits.host, targets.host, max.host, sums.host,
                                             at_target.host);
      },
      [&] {
        return kernels::CrossEntropyPartSumsCuda(part, logits.device, targets.device, max.device,
                                                 sums.device, at_target.device, nullptr);
      });
}

void CheckGradient(Trial& trial, const CrossEntropyPart& part) {
  const auto logits = trial.Out("dlogits", Logits(part), 0, kFunctionTolerance, 2);  // in place
  const auto targets = trial.In(Targets(part));
  const auto max = Largest(trial, part);
  std::vector<float> positive = RandomArray<float>(part.tokens, 20);
  for (float& value : positive) value += 1.5F;
  const auto sums = trial.In(std::move(positive));
  constexpr float kScale = 0.125F;
  trial.Run(
      [&] {
        return kernels::CrossEntropyPartGradient(part, logits.host, targets.host, max.host,
                                                 sums.host, kScale, logits.host);
      },
      [&] {
        return kernels::CrossEntropyPartGradientCuda(part, logits.device, targets.device,
                                                     max.device, sums.device, kScale, logits.device,
                                                     nullptr);
      });
}

KernelCase OverParts(const char* name, void (*check)(Trial&, const CrossEntropyPart&)) {
  KernelCase one;
  one.name = name;
  for (const CrossEntropyPart& part : kParts) {
    one.compared.emplace_back([check, part](Trial& trial) { check(trial, part); });
  }
  one.timed = [check](Trial& trial) { check(trial, kTimedPart); };
  return one;
}

// --- matrices ----------------------------------------------------------------------------------

template <typename From, typename To>
void CheckTranspose(Trial& trial, const Rows& r) {
  const auto from = trial.In(RandomArray<From>(r.count(), 21), r.shift);
  const auto to = trial.Out("to", std::vector<To>(r.count()), r.shift);
  trial.Run([&] { return kernels::TransposeMatrix(r.rows, r.cols, from.host, to.host); },
            [&] {
              return kernels::TransposeMatrixCuda(r.rows, r.cols, from.device, to.device, nullptr);
            });
}

// The host adds fp32 copies of the rows.
void CheckColumnSumWide(Trial& trial, const Rows& r) {
  const std::vector<BFloat16> values = RandomArray<BFloat16>(r.count(), 22);
  std::vector<float> wide(values.size());
  for (size_t i = 0; i < values.size(); ++i) wide[i] = values[i].ToFloat();
  const auto x = trial.In(values, r.shift);
  const auto out = trial.Out("sum", std::vector<float>(r.cols), r.shift, kSumTolerance);
  const size_t bytes = kernels::ColumnSumCudaWorkspaceBytes(r.rows, r.cols);
  void* const workspace = trial.Workspace(bytes);
  trial.Run(
      [&] {
        for (size_t column = 0; column < r.cols; ++column) {
          float sum = 0;
          for (size_t row = 0; row < r.rows; ++row) sum += wide[row * r.cols + column];
          out.host[column] = sum;
        }
        return kernels::Status::kOk;
      },
      [&] {
        return kernels::ColumnSumWideCuda(r.rows, r.cols, x.device, out.device, workspace, bytes,
                                          nullptr);
      });
}

}  // namespace

std::vector<KernelCase> PartCases() {
  return {OverRows("norm of a part, sum", CheckSum),
          OverRows("norm of a part, squares", CheckSquares),
          OverRows("norm of a part, means", CheckMeans),
          OverRows("norm of a part, inverse roots", CheckInverseRoots),
          OverRows("norm of a part", CheckForward),
          OverRows("norm of a part backward, sums", CheckGradientSums),
          OverRows("norm of a part backward", CheckBackward),
          OverParts("cross-entropy of a part, max", CheckMax),
          OverParts("cross-entropy of a part, sums", CheckSums),
          OverParts("cross-entropy of a part, gradient", CheckGradient),
          OverRows("transpose, fp32", CheckTranspose<float, float>),
          OverRows("transpose, bf16", CheckTranspose<BFloat16, BFloat16>),
          OverRows("transpose, fp32 to bf16", CheckTranspose<float, BFloat16>),
          OverRows("column sum, bf16 to fp32", CheckColumnSumWide)};
}

}  // namespace geminid::kernel_check
