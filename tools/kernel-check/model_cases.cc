#include <cstdint>

#include "kernels/model/activation/gelu.h"
#include "kernels/model/activation/gelu_cuda.h"
#include "kernels/model/activation/swiglu.h"
#include "kernels/model/activation/swiglu_cuda.h"
#include "kernels/model/cross_entropy/cross_entropy.h"
#include "kernels/model/cross_entropy/cross_entropy_cuda.h"
#include "kernels/model/elementwise/bias.h"
#include "kernels/model/elementwise/bias_cuda.h"
#include "kernels/model/embedding/embedding.h"
#include "kernels/model/embedding/embedding_cuda.h"
#include "kernels/model/normalisation/layer_norm.h"
#include "kernels/model/normalisation/layer_norm_cuda.h"
#include "kernels/model/normalisation/rms_norm.h"
#include "kernels/model/normalisation/rms_norm_cuda.h"
#include "kernels/model/rotary/rotary.h"
#include "kernels/model/rotary/rotary_cuda.h"
#include "kernels/runtime/simd/arguments.h"
#include "tools/kernel-check/trial.h"

namespace geminid::kernel_check {
namespace {

using kernels::BFloat16;
using kernels::Status;

// fp32 sums in another order, relative to the largest sum; bf16 results have one more rounding.
template <typename T>
constexpr double kSumTolerance = std::is_same_v<T, float> ? 1e-5 : 0x1p-8;
// For a logarithm or an exponential of another library, rounded to fp32.
constexpr double kFunctionTolerance = 1e-6;

struct Matrix {
  size_t rows;
  size_t cols;
  size_t shift;  // elements before a word

  size_t count() const { return rows * cols; }
};
// One element, warps without a row, tails of packs, several blocks of columns and of rows, chunks
// of rows, unaligned arrays, the widest row of a warp, rows wider than a thread holds.
constexpr Matrix kMatrices[] = {{1, 1, 0},    {3, 5, 1},   {9, 64, 0},   {7, 1000, 0},
                                {5, 4100, 1}, {70, 33, 0}, {200, 96, 0}, {2, 1024, 0},
                                {2, 2056, 0}, {1, 9000, 0}};
constexpr Matrix kTimedMatrix = {8192, 4096, 0};

using MatrixCheck = void (*)(Trial&, const Matrix&);

KernelCase OverMatrices(const char* name, MatrixCheck check) {
  KernelCase one;
  one.name = name;
  for (const Matrix& matrix : kMatrices) {
    one.compared.emplace_back([check, matrix](Trial& trial) { check(trial, matrix); });
  }
  one.timed = [check](Trial& trial) { check(trial, kTimedMatrix); };
  return one;
}

std::vector<std::byte> HostWorkspace(size_t bytes) {
  return std::vector<std::byte>(bytes + kernels::kWorkspaceAlignment);
}
void* Aligned(std::vector<std::byte>& bytes) {
  constexpr auto kAlignment = static_cast<uintptr_t>(kernels::kWorkspaceAlignment);
  const auto at = reinterpret_cast<uintptr_t>(bytes.data());
  return bytes.data() + (kAlignment - at % kAlignment) % kAlignment;
}

// --- elementwise -------------------------------------------------------------------------------

template <typename T>
void CheckBiasAdd(Trial& trial, const Matrix& m) {
  const auto bias = trial.In(RandomArray<T>(m.cols, 1), m.shift);
  const auto x = trial.Out("x", RandomArray<T>(m.count(), 2), m.shift, 0, 2);
  trial.Run([&] { return kernels::BiasAdd(m.rows, m.cols, bias.host, x.host); },
            [&] { return kernels::BiasAddCuda(m.rows, m.cols, bias.device, x.device, nullptr); });
}

template <typename T>
void CheckColumnSum(Trial& trial, const Matrix& m) {
  const bool accumulate = m.shift != 0;
  const auto x = trial.In(RandomArray<T>(m.count(), 3), m.shift);
  const auto out = trial.Out("sum", RandomArray<T>(m.cols, 4), m.shift, kSumTolerance<T>);
  const size_t bytes = kernels::ColumnSumCudaWorkspaceBytes(m.rows, m.cols);
  void* const workspace = trial.Workspace(bytes);
  const size_t host_bytes = kernels::ColumnSumWorkspaceBytes(m.cols);
  auto host_workspace = HostWorkspace(host_bytes);
  trial.Run(
      [&] {
        return kernels::ColumnSum(m.rows, m.cols, x.host, out.host, accumulate,
                                  Aligned(host_workspace), host_bytes);
      },
      [&] {
        return kernels::ColumnSumCuda(m.rows, m.cols, x.device, out.device, accumulate, workspace,
                                      bytes, nullptr);
      });
}

template <typename T>
void CheckGeluForward(Trial& trial, const Matrix& m) {
  const auto x = trial.In(RandomArray<T>(m.count(), 7, 12.0F), m.shift);
  const auto y = trial.Out("y", std::vector<T>(m.count()), m.shift);
  trial.Run([&] { return kernels::GeluForward(x.host, m.count(), y.host); },
            [&] { return kernels::GeluForwardCuda(x.device, m.count(), y.device, nullptr); });
}

template <typename T>
void CheckGeluBackward(Trial& trial, const Matrix& m) {
  const auto x = trial.In(RandomArray<T>(m.count(), 7, 12.0F), m.shift);
  const auto dx = trial.Out("dx", RandomArray<T>(m.count(), 8), m.shift, 0, 2);  // it is dy, too
  trial.Run([&] { return kernels::GeluBackward(dx.host, x.host, m.count(), dx.host); },
            [&] {
              return kernels::GeluBackwardCuda(dx.device, x.device, m.count(), dx.device, nullptr);
            });
}

// Gate and up are halves of one fused activation, with a stride between rows.
template <typename T>
void CheckSwigluForward(Trial& trial, const Matrix& m) {
  const size_t stride = 2 * m.cols;
  const kernels::SwigluShape shape = {m.rows, m.cols, stride};
  const auto fused = trial.In(RandomArray<T>(m.rows * stride, 9, 8.0F), m.shift);
  const auto y = trial.Out("y", std::vector<T>(m.count()), m.shift);
  trial.Run([&] { return kernels::SwigluForward(shape, fused.host, fused.host + m.cols, y.host); },
            [&] {
              return kernels::SwigluForwardCuda(shape, fused.device, fused.device + m.cols,
                                                y.device, nullptr);
            });
}

template <typename T>
void CheckSwigluBackward(Trial& trial, const Matrix& m) {
  const size_t stride = 2 * m.cols;
  const kernels::SwigluShape shape = {m.rows, m.cols, stride};
  const auto fused = trial.Out("gradient", RandomArray<T>(m.rows * stride, 9, 8.0F), m.shift, 0, 2);
  const auto dy = trial.In(RandomArray<T>(m.count(), 10), m.shift);
  trial.Run(
      [&] {
        return kernels::SwigluBackward(shape, dy.host, fused.host, fused.host + m.cols, fused.host,
                                       fused.host + m.cols);
      },
      [&] {
        return kernels::SwigluBackwardCuda(shape, dy.device, fused.device, fused.device + m.cols,
                                           fused.device, fused.device + m.cols, nullptr);
      });
}

// --- normalisations ----------------------------------------------------------------------------

// P is the type of gamma and beta.
template <typename T, typename P = T>
void CheckLayerNormForward(Trial& trial, const Matrix& m) {
  const kernels::LayerNormShape shape = {m.rows, m.cols, 1e-5F};
  const auto x = trial.In(RandomArray<T>(m.count(), 11, 3.0F), m.shift);
  const auto gamma = trial.In(RandomArray<P>(m.cols, 12), m.shift);
  const auto beta = trial.In(RandomArray<P>(m.cols, 13), m.shift);
  const auto y = trial.Out("y", std::vector<T>(m.count()), m.shift);
  const auto mean = trial.Out("mean", std::vector<float>(m.rows));
  const auto rstd = trial.Out("rstd", std::vector<float>(m.rows));
  trial.Run(
      [&] {
        return kernels::LayerNormForward(shape, x.host, gamma.host, beta.host, y.host, mean.host,
                                         rstd.host);
      },
      [&] {
        return kernels::LayerNormForwardCuda(shape, x.device, gamma.device, beta.device, y.device,
                                             mean.device, rstd.device, nullptr);
      });
}

// Possible results of a forward pass: any numbers will do.
std::vector<float> RandomRstd(size_t rows) {
  std::vector<float> rstd = RandomArray<float>(rows, 14);
  for (float& value : rstd) value = 1.5F + value;
  return rstd;
}

template <typename T, typename P = T>
void CheckLayerNormBackward(Trial& trial, const Matrix& m) {
  const kernels::LayerNormShape shape = {m.rows, m.cols, 1e-5F};
  const auto dx = trial.Out("dx", RandomArray<T>(m.count(), 15), m.shift, 0, 2);  // it is dy, too
  const auto x = trial.In(RandomArray<T>(m.count(), 16), m.shift);
  const auto gamma = trial.In(RandomArray<P>(m.cols, 17), m.shift);
  const auto mean = trial.In(RandomArray<float>(m.rows, 18));
  const auto rstd = trial.In(RandomRstd(m.rows));
  const auto residual = trial.In(RandomArray<T>(m.count(), 19), m.shift);
  const auto dgamma = trial.Out("dgamma", RandomArray<P>(m.cols, 20), 0, kSumTolerance<P>);
  const auto dbeta = trial.Out("dbeta", RandomArray<P>(m.cols, 21), 0, kSumTolerance<P>);
  const bool accumulate = m.shift != 0;
  const size_t bytes = kernels::LayerNormCudaWorkspaceBytes(shape);
  void* const workspace = trial.Workspace(bytes);
  const size_t host_bytes = kernels::LayerNormWorkspaceBytes(shape);
  auto host_workspace = HostWorkspace(host_bytes);
  trial.Run(
      [&] {
        return kernels::LayerNormBackward<T, P>(
            shape,
            {dx.host, x.host, gamma.host, mean.host, rstd.host, residual.host, dx.host, dgamma.host,
             dbeta.host, accumulate},
            Aligned(host_workspace), host_bytes);
      },
      [&] {
        return kernels::LayerNormBackwardCuda<T, P>(
            shape,
            {dx.device, x.device, gamma.device, mean.device, rstd.device, residual.device,
             dx.device, dgamma.device, dbeta.device, accumulate},
            workspace, bytes, nullptr);
      });
}

template <typename T, typename P = T>
void CheckRmsNormForward(Trial& trial, const Matrix& m) {
  const kernels::RmsNormShape shape = {m.rows, m.cols, 1e-5F};
  const auto x = trial.In(RandomArray<T>(m.count(), 22, 3.0F), m.shift);
  const auto gamma = trial.In(RandomArray<P>(m.cols, 23), m.shift);
  const auto y = trial.Out("y", std::vector<T>(m.count()), m.shift);
  const auto rstd = trial.Out("rstd", std::vector<float>(m.rows));
  trial.Run([&] { return kernels::RmsNormForward(shape, x.host, gamma.host, y.host, rstd.host); },
            [&] {
              return kernels::RmsNormForwardCuda(shape, x.device, gamma.device, y.device,
                                                 rstd.device, nullptr);
            });
}

template <typename T, typename P = T>
void CheckRmsNormBackward(Trial& trial, const Matrix& m) {
  const kernels::RmsNormShape shape = {m.rows, m.cols, 1e-5F};
  const auto dx = trial.Out("dx", RandomArray<T>(m.count(), 24), m.shift, 0, 2);  // it is dy, too
  const auto x = trial.In(RandomArray<T>(m.count(), 25), m.shift);
  const auto gamma = trial.In(RandomArray<P>(m.cols, 26), m.shift);
  const auto rstd = trial.In(RandomRstd(m.rows));
  const auto dgamma = trial.Out("dgamma", RandomArray<P>(m.cols, 27), 0, kSumTolerance<P>);
  const bool accumulate = m.shift != 0;
  const size_t bytes = kernels::RmsNormCudaWorkspaceBytes(shape);
  void* const workspace = trial.Workspace(bytes);
  const size_t host_bytes = kernels::RmsNormWorkspaceBytes(shape);
  auto host_workspace = HostWorkspace(host_bytes);
  trial.Run(
      [&] {
        return kernels::RmsNormBackward<T, P>(
            shape,
            {dx.host, x.host, gamma.host, rstd.host, nullptr, dx.host, dgamma.host, accumulate},
            Aligned(host_workspace), host_bytes);
      },
      [&] {
        return kernels::RmsNormBackwardCuda<T, P>(shape,
                                                  {dx.device, x.device, gamma.device, rstd.device,
                                                   nullptr, dx.device, dgamma.device, accumulate},
                                                  workspace, bytes, nullptr);
      });
}

// --- rotary ------------------------------------------------------------------------------------

struct RotaryTrial {
  kernels::RotaryShape shape;
  bool backward;
};

template <typename T>
void CheckRotary(Trial& trial, const RotaryTrial& turn) {
  const kernels::RotaryShape& shape = turn.shape;
  const size_t half = shape.head_dim / 2;
  const size_t positions = shape.first_position + shape.sequence;
  std::vector<float> cos(positions * half);
  std::vector<float> sin(positions * half);
  if (kernels::RotaryTable(positions, shape.head_dim, 10000, cos.data(), sin.data()) !=
      Status::kOk) {
    return;
  }
  const auto cosines = trial.In(std::move(cos));
  const auto sines = trial.In(std::move(sin));
  const auto x = trial.Out(
      "x", RandomArray<T>(shape.batch * shape.sequence * shape.token_stride, 28), 0, 0, 2);
  const auto on_host = turn.backward ? kernels::RotaryBackward<T> : kernels::RotaryForward<T>;
  const auto on_device =
      turn.backward ? kernels::RotaryBackwardCuda<T> : kernels::RotaryForwardCuda<T>;
  trial.Run([&] { return on_host(shape, cosines.host, sines.host, x.host); },
            [&] { return on_device(shape, cosines.device, sines.device, x.device, nullptr); });
}

template <typename T>
KernelCase RotaryCase(const char* name) {
  KernelCase one;
  one.name = name;
  for (const RotaryTrial& turn :
       {RotaryTrial{{2, 7, 3, 10, 32, 5, 0}, false}, RotaryTrial{{1, 3, 5, 128, 640, 0, 0}, true},
        RotaryTrial{{1, 1, 1, 2, 2, 0, 0}, false}, RotaryTrial{{2, 3, 5, 6, 120, 1, 24}, true}}) {
    one.compared.emplace_back([turn](Trial& trial) { CheckRotary<T>(trial, turn); });
  }
  one.timed = [](Trial& trial) { CheckRotary<T>(trial, {{8, 1024, 32, 128, 4096, 0, 0}, false}); };
  return one;
}

// --- embedding ---------------------------------------------------------------------------------

struct Lookup {
  kernels::EmbeddingShape shape;
  size_t sequence;
  bool accumulate;
};

constexpr Lookup kLookups[] = {
    {{1, 1, 1, 0, 1}, 1, false},
    {{600, 20, 13, 0, 13}, 100, true},  // many tokens of each row
    {{300, 1030, 1000, 200, 500}, 150, false},
    {{2500, 8, 300000, 100, 299000}, 250, true},  // several tiles, two digits, rows of others
    {{128, 12, 1, 0, 1}, 64, false},              // whole chunks of one row
    {{129, 3, 1, 0, 1}, 43, true}};               // and one token more
constexpr Lookup kTimedLookup = {{8192, 4096, 50257, 0, 50257}, 1024, false};

// Every id of the vocabulary; some occur often.
std::vector<int32_t> Ids(const kernels::EmbeddingShape& shape) {
  std::vector<int32_t> ids(shape.tokens);
  for (size_t t = 0; t < shape.tokens; ++t) {
    const double unit = 0.5 * (1.0 + static_cast<double>(RandomUnit(t)));
    ids[t] = static_cast<int32_t>(unit * unit * static_cast<double>(shape.vocabulary));
  }
  return ids;
}

template <typename T>
void CheckEmbeddingForward(Trial& trial, const Lookup& lookup) {
  const kernels::EmbeddingShape& shape = lookup.shape;
  const auto ids = trial.In(Ids(shape));
  const auto table = trial.In(RandomArray<T>(shape.rows * shape.hidden, 29));
  const auto positions = trial.In(RandomArray<T>(lookup.sequence * shape.hidden, 30));
  const auto y = trial.Out("y", std::vector<T>(shape.tokens * shape.hidden));
  trial.Run(
      [&] {
        return kernels::EmbeddingForward(shape, ids.host, table.host,
                                         lookup.accumulate ? nullptr : positions.host,
                                         lookup.sequence, y.host);
      },
      [&] {
        return kernels::EmbeddingForwardCuda(shape, ids.device, table.device,
                                             lookup.accumulate ? nullptr : positions.device,
                                             lookup.sequence, y.device, nullptr);
      });
}

template <typename T>
void CheckEmbeddingBackward(Trial& trial, const Lookup& lookup) {
  const kernels::EmbeddingShape& shape = lookup.shape;
  const auto ids = trial.In(Ids(shape));
  const auto dy = trial.In(RandomArray<T>(shape.tokens * shape.hidden, 31));
  const auto dtable = trial.Out("dtable", RandomArray<T>(shape.rows * shape.hidden, 32));
  const size_t bytes = kernels::EmbeddingCudaWorkspaceBytes(shape);
  void* const workspace = trial.Workspace(bytes);
  const size_t host_bytes = kernels::EmbeddingWorkspaceBytes(shape);
  auto host_workspace = HostWorkspace(host_bytes);
  trial.Run(
      [&] {
        return kernels::EmbeddingBackward(shape, ids.host, dy.host, dtable.host, lookup.accumulate,
                                          Aligned(host_workspace), host_bytes);
      },
      [&] {
        return kernels::EmbeddingBackwardCuda(shape, ids.device, dy.device, dtable.device,
                                              lookup.accumulate, workspace, bytes, nullptr);
      });
}

template <typename T>
void CheckPositions(Trial& trial, const Lookup& lookup) {
  const size_t hidden = lookup.shape.hidden;
  const size_t batch = lookup.shape.tokens / lookup.sequence;
  const auto dy = trial.In(RandomArray<T>(batch * lookup.sequence * hidden, 33));
  const auto to = trial.Out("dpositions", RandomArray<T>(lookup.sequence * hidden, 34));
  trial.Run(
      [&] {
        return kernels::PositionEmbeddingBackward(batch, lookup.sequence, hidden, dy.host, to.host,
                                                  lookup.accumulate);
      },
      [&] {
        return kernels::PositionEmbeddingBackwardCuda(batch, lookup.sequence, hidden, dy.device,
                                                      to.device, lookup.accumulate, nullptr);
      });
}

KernelCase OverLookups(const char* name, void (*check)(Trial&, const Lookup&)) {
  KernelCase one;
  one.name = name;
  for (const Lookup& lookup : kLookups) {
    one.compared.emplace_back([check, lookup](Trial& trial) { check(trial, lookup); });
  }
  one.timed = [check](Trial& trial) { check(trial, kTimedLookup); };
  return one;
}

// --- cross-entropy -----------------------------------------------------------------------------

template <typename T>
void CheckCrossEntropy(Trial& trial, const kernels::CrossEntropyShape& shape) {
  std::vector<int32_t> targets(shape.tokens);
  for (size_t t = 0; t < shape.tokens; ++t) {
    targets[t] =
        t % 5 == 3 ? kernels::kIgnoredTarget : static_cast<int32_t>(t * 7919 % shape.vocabulary);
  }
  const auto target = trial.In(std::move(targets));
  const auto logits = trial.Out("dlogits",  // in place
                                RandomArray<T>(shape.tokens * shape.row_stride, 35, 6.0F), 0,
                                std::is_same_v<T, float> ? kFunctionTolerance : 0x1p-9, 2);
  const auto loss =
      trial.Out("token_loss", std::vector<float>(shape.tokens), 0, kFunctionTolerance);
  const size_t bytes = kernels::CrossEntropyCudaWorkspaceBytes(shape);
  void* const workspace = trial.Workspace(bytes);
  CudaBuffer result(sizeof(kernels::CrossEntropyResult));
  kernels::CrossEntropyResult expected;
  kernels::CrossEntropyResult found;
  constexpr float kGradScale = 0.125F;
  trial.Run(
      [&] {
        return kernels::CrossEntropy(shape, logits.host, target.host, kGradScale, logits.host,
                                     loss.host, &expected);
      },
      [&] {
        return kernels::CrossEntropyCuda(shape, logits.device, target.device, kGradScale,
                                         logits.device, loss.device, workspace, bytes,
                                         result.as<kernels::CrossEntropyResult>(), nullptr);
      });
  if (trial.timed()) return;
  trial.Expect(result.CopyTo(&found, sizeof(found)), "the result could not be read");
  trial.Expect(found.counted == expected.counted, "another number of tokens is counted");
  trial.Expect(std::fabs(found.loss_sum - expected.loss_sum) <=
                   kFunctionTolerance * std::fabs(expected.loss_sum),
               "the sum of the losses is another");
}

template <typename T>
KernelCase CrossEntropyCase(const char* name) {
  KernelCase one;
  one.name = name;
  for (const kernels::CrossEntropyShape& shape :
       {kernels::CrossEntropyShape{1, 1, 1}, kernels::CrossEntropyShape{7, 300, 311},
        kernels::CrossEntropyShape{270, 17, 17}, kernels::CrossEntropyShape{3, 40000, 40000}}) {
    one.compared.emplace_back([shape](Trial& trial) { CheckCrossEntropy<T>(trial, shape); });
  }
  one.timed = [](Trial& trial) { CheckCrossEntropy<T>(trial, {2048, 50257, 50304}); };
  return one;
}

}  // namespace

std::vector<KernelCase> ModelCases() {
  return {
      OverMatrices("bias, fp32", CheckBiasAdd<float>),
      OverMatrices("bias, bf16", CheckBiasAdd<BFloat16>),
      OverMatrices("column sum, fp32", CheckColumnSum<float>),
      OverMatrices("column sum, bf16", CheckColumnSum<BFloat16>),
      OverMatrices("gelu, fp32", CheckGeluForward<float>),
      OverMatrices("gelu, bf16", CheckGeluForward<BFloat16>),
      OverMatrices("gelu backward, fp32", CheckGeluBackward<float>),
      OverMatrices("gelu backward, bf16", CheckGeluBackward<BFloat16>),
      OverMatrices("swiglu, fp32", CheckSwigluForward<float>),
      OverMatrices("swiglu, bf16", CheckSwigluForward<BFloat16>),
      OverMatrices("swiglu backward, fp32", CheckSwigluBackward<float>),
      OverMatrices("swiglu backward, bf16", CheckSwigluBackward<BFloat16>),
      OverMatrices("layer norm, fp32", CheckLayerNormForward<float>),
      OverMatrices("layer norm, bf16", CheckLayerNormForward<BFloat16>),
      OverMatrices("layer norm, bf16 with fp32 gains", CheckLayerNormForward<BFloat16, float>),
      OverMatrices("layer norm backward, fp32", CheckLayerNormBackward<float>),
      OverMatrices("layer norm backward, bf16", CheckLayerNormBackward<BFloat16>),
      OverMatrices("layer norm backward, bf16 with fp32 gains",
                   CheckLayerNormBackward<BFloat16, float>),
      OverMatrices("rms norm, fp32", CheckRmsNormForward<float>),
      OverMatrices("rms norm, bf16", CheckRmsNormForward<BFloat16>),
      OverMatrices("rms norm, bf16 with fp32 gains", CheckRmsNormForward<BFloat16, float>),
      OverMatrices("rms norm backward, fp32", CheckRmsNormBackward<float>),
      OverMatrices("rms norm backward, bf16", CheckRmsNormBackward<BFloat16>),
      OverMatrices("rms norm backward, bf16 with fp32 gains",
                   CheckRmsNormBackward<BFloat16, float>),
      RotaryCase<float>("rotary, fp32"),
      RotaryCase<BFloat16>("rotary, bf16"),
      OverLookups("embedding, fp32", CheckEmbeddingForward<float>),
      OverLookups("embedding, bf16", CheckEmbeddingForward<BFloat16>),
      OverLookups("embedding backward, fp32", CheckEmbeddingBackward<float>),
      OverLookups("embedding backward, bf16", CheckEmbeddingBackward<BFloat16>),
      OverLookups("positions backward, fp32", CheckPositions<float>),
      OverLookups("positions backward, bf16", CheckPositions<BFloat16>),
      CrossEntropyCase<float>("cross-entropy, fp32"),
      CrossEntropyCase<BFloat16>("cross-entropy, bf16"),
  };
}

}  // namespace geminid::kernel_check
