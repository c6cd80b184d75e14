// Speed of the transformer kernels on one core, at the shapes of a small GPT-2 (hidden 768, 12
// heads of 64, vocabulary 50257) on 256 tokens. Counters: FLOP/s for products, bytes/s moved for
// the others. `of_library` is the speed of a product over that of one oneDNN call on dense fp32
// operands, measured in turn: below 0.9 the library could do better. `of_copies` is the speed of a
// bf16 product over that of the same call on fp32 copies with a rounded result: what a caller of
// oneDNN can do where the processor does not multiply bf16.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "hwy/aligned_allocator.h"
#include "kernels/model/activation/gelu.h"
#include "kernels/model/activation/swiglu.h"
#include "kernels/model/attention/attention.h"
#include "kernels/model/cross_entropy/cross_entropy.h"
#include "kernels/model/embedding/embedding.h"
#include "kernels/model/matmul/linear.h"
#include "kernels/model/matmul/plan.h"
#include "kernels/model/normalisation/layer_norm.h"
#include "kernels/model/normalisation/rms_norm.h"
#include "kernels/model/rotary/rotary.h"
#include "kernels/numeric/cast/cast.h"
#include "tools/bench/size.h"

namespace geminid::kernels {
namespace {

const size_t kTokens = bench::Size(256, 32);
constexpr size_t kHidden = 768;
const size_t kVocabulary = bench::Size(50257, 1001);

template <typename T>
class Tensor {
 public:
  explicit Tensor(size_t count) : count_(count), data_(hwy::AllocateAligned<T>(count)) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<T, BFloat16>) {
        data_[i] = BFloat16::FromFloat(normal(random));
      } else {
        data_[i] = static_cast<T>(normal(random));
      }
    }
  }
  T* data() { return data_.get(); }
  size_t size() const { return count_; }
  size_t bytes() const { return count_ * sizeof(T); }

 private:
  size_t count_;
  hwy::AlignedFreeUniquePtr<T[]> data_;
};

void Require(benchmark::State& state, Status status) {
  if (status != Status::kOk) state.SkipWithError(StatusName(status));
}

void SetFlops(benchmark::State& state, double flop) {
  state.counters["FLOP/s"] =
      benchmark::Counter(flop, benchmark::Counter::kIsIterationInvariantRate);
}

void SetBytes(benchmark::State& state, size_t bytes) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(bytes));
}

template <typename T>
struct Product {
  explicit Product(const MatmulShape& of)
      : shape(of),
        a(Stored(of.m, of.k, of.transpose_a, of.a_stride)),
        b(Stored(of.k, of.n, of.transpose_b, of.b_stride)),
        c(Stored(of.m, of.n, Transpose::kNo, of.c_stride)),
        bias(of.n) {
    status = MatmulWorkspaceBytes<T, T>(shape, &workspace_bytes);
    workspace = hwy::AllocateAligned<uint8_t>(workspace_bytes + 1);
  }
  Status Run() {
    if (status != Status::kOk) return status;
    return Matmul(shape, a.data(), b.data(), bias.data(), c.data(), workspace.get(),
                  workspace_bytes);
  }

  static size_t Stored(size_t rows, size_t cols, Transpose transpose, size_t stride) {
    if (transpose == Transpose::kYes) std::swap(rows, cols);
    return rows * std::max(cols, stride);
  }

  MatmulShape shape;
  Tensor<T> a, b, c, bias;
  Status status;
  size_t workspace_bytes = 0;
  hwy::AlignedFreeUniquePtr<uint8_t[]> workspace;
};

template <typename T>
void BM_Matmul(benchmark::State& state, const MatmulShape& shape) {
  Product<T> product(shape);
  for (auto _ : state) Require(state, product.Run());
  SetFlops(state, 2.0 * static_cast<double>(shape.m * shape.n * shape.k));
  state.counters["workspace"] = static_cast<double>(product.workspace_bytes);
}

double ThreadSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Runs the two in turn, so that a machine whose speed drifts slows both. Returns the median over
// the pairs of the base's processor time over the other's.
template <typename Base, typename Other>
double MedianRatio(benchmark::State& state, const Base& base, const Other& other) {
  const auto timed = [&state](const auto& product) {
    const double began = ThreadSeconds();
    Require(state, product());
    return ThreadSeconds() - began;
  };
  std::vector<double> ratios;
  for (auto _ : state) {
    const double seconds = timed(other);
    ratios.push_back(timed(base) / seconds);
  }
  std::nth_element(ratios.begin(), ratios.begin() + ratios.size() / 2, ratios.end());
  return ratios[ratios.size() / 2];
}

// Reports bf16 over fp32 as `of_fp32`.
void BM_MatmulOfFloat(benchmark::State& state, const MatmulShape& shape) {
  Product<BFloat16> narrow(shape);
  Product<float> wide(shape);
  state.counters["of_fp32"] = MedianRatio(
      state, [&] { return wide.Run(); }, [&] { return narrow.Run(); });
}

// The same shape without gaps between rows.
MatmulShape Dense(MatmulShape shape) {
  shape.a_stride = shape.transpose_a == Transpose::kYes ? shape.m : shape.k;
  shape.b_stride = shape.transpose_b == Transpose::kYes ? shape.k : shape.n;
  shape.c_stride = shape.n;
  return shape;
}

// One call of oneDNN for a product of dense fp32 matrices.
struct LibraryCall {
  explicit LibraryCall(const MatmulShape& shape)
      : product(Dense(shape)),
        plan({product.shape, dnnl::memory::data_type::f32, dnnl::memory::data_type::f32}),
        scratchpad(plan.scratchpad_bytes() + 1) {}
  Status Run() {
    plan.Run(product.a.data(), product.b.data(), product.bias.data(), product.c.data(),
             scratchpad.data());
    return Status::kOk;
  }

  const SingleThread single_thread;
  Product<float> product;
  Plan plan;
  Tensor<uint8_t> scratchpad;
};

// Reports T over that call as `of_library`.
template <typename T>
void BM_MatmulOfLibrary(benchmark::State& state, const MatmulShape& shape) {
  Product<T> product(shape);
  LibraryCall library(shape);
  state.counters["of_library"] = MedianRatio(
      state, [&] { return library.Run(); }, [&] { return product.Run(); });
}

// Reports bf16 over that call on copies, with a rounded result, as `of_copies`.
void BM_MatmulOfCopies(benchmark::State& state, const MatmulShape& shape) {
  Product<BFloat16> product(shape), dense(Dense(shape));
  LibraryCall library(shape);
  const auto copy = [&state](Tensor<BFloat16>& from, Tensor<float>& to) {
    Require(state, CastToFloat(from.data(), to.size(), to.data()));
  };
  const auto copies = [&] {
    copy(dense.a, library.product.a);
    copy(dense.b, library.product.b);
    copy(dense.bias, library.product.bias);
    if (shape.accumulate) copy(dense.c, library.product.c);
    Require(state, library.Run());
    return CastToBFloat16(library.product.c.data(), library.product.c.size(), dense.c.data());
  };
  state.counters["of_copies"] = MedianRatio(state, copies, [&] { return product.Run(); });
}

void RegisterMatmuls() {
  const auto add = [](const char* name, const MatmulShape& shape) {
    const std::string base = std::string("BM_Matmul/") + name;
    benchmark::RegisterBenchmark((std::string("BM_MatmulOfFloat/") + name).c_str(),
                                 BM_MatmulOfFloat, shape);
    const std::string of_library = std::string("BM_MatmulOfLibrary/") + name;
    benchmark::RegisterBenchmark((of_library + "/bf16").c_str(), BM_MatmulOfLibrary<BFloat16>,
                                 shape);
    benchmark::RegisterBenchmark((of_library + "/fp32").c_str(), BM_MatmulOfLibrary<float>, shape);
    benchmark::RegisterBenchmark((std::string("BM_MatmulOfCopies/") + name).c_str(),
                                 BM_MatmulOfCopies, shape);
    benchmark::RegisterBenchmark((base + "/bf16").c_str(), BM_Matmul<BFloat16>, shape);
    benchmark::RegisterBenchmark((base + "/fp32").c_str(), BM_Matmul<float>, shape);
  };
  add("forward", LinearForwardShape(kTokens, kHidden, 4 * kHidden, true));
  add("input_gradient", LinearBackwardInputShape(kTokens, kHidden, 4 * kHidden));
  add("weight_gradient", LinearBackwardWeightShape(kTokens, kHidden, 4 * kHidden));
  add("weight_gradient_accumulated",
      LinearBackwardWeightShape(kTokens, kHidden, 4 * kHidden, true));
  add("logits", LinearForwardShape(kTokens, kHidden, kVocabulary, false));
  // A slice of a wider matrix, like the one that holds queries, keys and values.
  MatmulShape third = LinearBackwardInputShape(kTokens, kHidden, kHidden);
  third.b_stride = 3 * kHidden;
  add("third", third);
  add("few_tokens", LinearForwardShape(kTokens / 4, kHidden, 4 * kHidden, true));
  // The three products of 256 columns of GPT-2's first matrix of the MLP, stored [in, out].
  constexpr size_t kTogether = 1024, kSlice = 256;
  add("slice_forward", {.m = kTogether, .n = kSlice, .k = kHidden, .b_stride = 4 * kHidden});
  add("slice_input_gradient", {.m = kTogether,
                               .n = kHidden,
                               .k = kSlice,
                               .transpose_b = Transpose::kYes,
                               .b_stride = 4 * kHidden});
  add("slice_weight_gradient", {.m = kHidden,
                                .n = kSlice,
                                .k = kTogether,
                                .transpose_a = Transpose::kYes,
                                .c_stride = 4 * kHidden});
  add("weight_gradient_back", LinearBackwardWeightShape(kTokens, 4 * kHidden, kHidden));
  constexpr size_t kOf20m = 384;
  add("20m_forward", LinearForwardShape(kTokens, kOf20m, 4 * kOf20m, true));
  add("20m_input_gradient", LinearBackwardInputShape(kTokens, kOf20m, 4 * kOf20m));
  add("20m_weight_gradient", LinearBackwardWeightShape(kTokens, kOf20m, 4 * kOf20m));
}

template <typename T>
struct AttentionBench {
  explicit AttentionBench(const benchmark::State& state)
      : shape{.batch = 1,
              .sequence = static_cast<size_t>(state.range(0)),
              .heads = 8,
              .kv_heads = static_cast<size_t>(state.range(1)),
              .head_dim = static_cast<size_t>(state.range(2)),
              .scale = 0.125F},
        q(shape.sequence * 8 * shape.head_dim),
        k(shape.sequence * shape.kv_heads * shape.head_dim),
        v(k.size()),
        out(q.size()),
        dout(q.size()),
        dq(q.size()),
        dk(k.size()),
        dv(k.size()),
        lse(8 * shape.sequence),
        workspace(AttentionWorkspaceBytes(shape)) {}

  HeadsView<T> View(Tensor<T>& x) const { return {x.data(), x.size() / shape.sequence}; }
  HeadsView<const T> ConstView(Tensor<T>& x) const { return {x.data(), x.size() / shape.sequence}; }

  Status Forward() {
    return AttentionForward<T>(shape, ConstView(q), ConstView(k), ConstView(v), View(out),
                               lse.data(), workspace.data(), workspace.size());
  }
  Status Backward() {
    const AttentionSaved<T> saved = {ConstView(q),   ConstView(k),    ConstView(v),
                                     ConstView(out), ConstView(dout), lse.data()};
    return AttentionBackward<T>(shape, saved, View(dq), View(dk), View(dv), workspace.data(),
                                workspace.size());
  }
  // The operations of one product over the causal half of the scores.
  double Flop() const {
    const auto t = static_cast<double>(shape.sequence);
    return 8 * t * (t + 1) * static_cast<double>(shape.head_dim);
  }

  AttentionShape shape;
  Tensor<T> q, k, v, out, dout, dq, dk, dv;
  Tensor<float> lse;
  Tensor<uint8_t> workspace;
};

template <typename T>
void BM_AttentionForward(benchmark::State& state) {
  AttentionBench<T> bench(state);
  for (auto _ : state) Require(state, bench.Forward());
  SetFlops(state, 2 * bench.Flop());
}

template <typename T>
void BM_AttentionBackward(benchmark::State& state) {
  AttentionBench<T> bench(state);
  Require(state, bench.Forward());
  for (auto _ : state) Require(state, bench.Backward());
  SetFlops(state, 5 * bench.Flop());
}

#define GEMINID_ATTENTION_SHAPES \
  Args({256, 8, 64})->Args({1024, 8, 64})->Args({1024, 2, 128})->Args({256, 8, 32})
BENCHMARK_TEMPLATE(BM_AttentionForward, BFloat16)->GEMINID_ATTENTION_SHAPES;
BENCHMARK_TEMPLATE(BM_AttentionBackward, BFloat16)->GEMINID_ATTENTION_SHAPES;
BENCHMARK_TEMPLATE(BM_AttentionForward, float)->Args({256, 8, 64});
BENCHMARK_TEMPLATE(BM_AttentionBackward, float)->Args({256, 8, 64});

template <typename T>
void BM_LayerNormForward(benchmark::State& state) {
  const LayerNormShape shape = {.rows = kTokens, .cols = kHidden};
  Tensor<T> x(kTokens * kHidden), y(x.size()), gamma(kHidden), beta(kHidden);
  Tensor<float> mean(kTokens), rstd(kTokens);
  for (auto _ : state) {
    Require(state, LayerNormForward(shape, x.data(), gamma.data(), beta.data(), y.data(),
                                    mean.data(), rstd.data()));
  }
  SetBytes(state, 2 * x.bytes());
}
BENCHMARK_TEMPLATE(BM_LayerNormForward, BFloat16);
BENCHMARK_TEMPLATE(BM_LayerNormForward, float);

template <typename T>
void BM_LayerNormBackward(benchmark::State& state) {
  const LayerNormShape shape = {.rows = kTokens, .cols = kHidden};
  Tensor<T> x(kTokens * kHidden), dy(x.size()), dx(x.size());
  Tensor<T> gamma(kHidden), dgamma(kHidden), dbeta(kHidden);
  Tensor<float> mean(kTokens), rstd(kTokens);
  Tensor<uint8_t> workspace(LayerNormWorkspaceBytes(shape));
  const LayerNormBackwardArgs<T> args = {.dy = dy.data(),
                                         .x = x.data(),
                                         .gamma = gamma.data(),
                                         .mean = mean.data(),
                                         .rstd = rstd.data(),
                                         .dx = dx.data(),
                                         .dgamma = dgamma.data(),
                                         .dbeta = dbeta.data()};
  for (auto _ : state) {
    Require(state, LayerNormBackward(shape, args, workspace.data(), workspace.size()));
  }
  SetBytes(state, 3 * x.bytes());
}
BENCHMARK_TEMPLATE(BM_LayerNormBackward, BFloat16);
BENCHMARK_TEMPLATE(BM_LayerNormBackward, float);

template <typename T>
void BM_RmsNormForward(benchmark::State& state) {
  Tensor<T> x(kTokens * kHidden), y(x.size()), gamma(kHidden);
  Tensor<float> rstd(kTokens);
  for (auto _ : state) {
    Require(state, RmsNormForward({.rows = kTokens, .cols = kHidden}, x.data(), gamma.data(),
                                  y.data(), rstd.data()));
  }
  SetBytes(state, 2 * x.bytes());
}
BENCHMARK_TEMPLATE(BM_RmsNormForward, BFloat16);

template <typename T>
void BM_RmsNormBackward(benchmark::State& state) {
  const RmsNormShape shape = {.rows = kTokens, .cols = kHidden};
  Tensor<T> x(kTokens * kHidden), dy(x.size()), dx(x.size()), gamma(kHidden), dgamma(kHidden);
  Tensor<float> rstd(kTokens);
  Tensor<uint8_t> workspace(RmsNormWorkspaceBytes(shape));
  const RmsNormBackwardArgs<T> args = {.dy = dy.data(),
                                       .x = x.data(),
                                       .gamma = gamma.data(),
                                       .rstd = rstd.data(),
                                       .dx = dx.data(),
                                       .dgamma = dgamma.data()};
  for (auto _ : state) {
    Require(state, RmsNormBackward(shape, args, workspace.data(), workspace.size()));
  }
  SetBytes(state, 3 * x.bytes());
}
BENCHMARK_TEMPLATE(BM_RmsNormBackward, BFloat16);

template <typename T>
void BM_GeluForward(benchmark::State& state) {
  Tensor<T> x(kTokens * 4 * kHidden), y(x.size());
  for (auto _ : state) Require(state, GeluForward(x.data(), x.size(), y.data()));
  SetBytes(state, 2 * x.bytes());
}
BENCHMARK_TEMPLATE(BM_GeluForward, BFloat16);
BENCHMARK_TEMPLATE(BM_GeluForward, float);

template <typename T>
void BM_GeluBackward(benchmark::State& state) {
  Tensor<T> x(kTokens * 4 * kHidden), dy(x.size()), dx(x.size());
  for (auto _ : state) Require(state, GeluBackward(dy.data(), x.data(), x.size(), dx.data()));
  SetBytes(state, 3 * x.bytes());
}
BENCHMARK_TEMPLATE(BM_GeluBackward, BFloat16);

template <typename T>
void BM_SwigluForward(benchmark::State& state) {
  const SwigluShape shape = {.rows = kTokens, .cols = 2048, .gate_up_stride = 4096};
  Tensor<T> fused(kTokens * 4096), y(kTokens * 2048);
  for (auto _ : state) {
    Require(state, SwigluForward(shape, fused.data(), fused.data() + 2048, y.data()));
  }
  SetBytes(state, fused.bytes() + y.bytes());
}
BENCHMARK_TEMPLATE(BM_SwigluForward, BFloat16);

template <typename T>
void BM_SwigluBackward(benchmark::State& state) {
  const SwigluShape shape = {.rows = kTokens, .cols = 2048, .gate_up_stride = 4096};
  Tensor<T> fused(kTokens * 4096), dfused(fused.size()), dy(kTokens * 2048);
  for (auto _ : state) {
    Require(state, SwigluBackward(shape, dy.data(), fused.data(), fused.data() + 2048,
                                  dfused.data(), dfused.data() + 2048));
  }
  SetBytes(state, 2 * fused.bytes() + dy.bytes());
}
BENCHMARK_TEMPLATE(BM_SwigluBackward, BFloat16);

template <typename T>
void BM_Rotary(benchmark::State& state) {
  const RotaryShape shape = {
      .batch = 1, .sequence = kTokens, .heads = 12, .head_dim = 64, .token_stride = kHidden};
  Tensor<T> x(kTokens * kHidden);
  Tensor<float> cos(kTokens * 32), sin(kTokens * 32);
  Require(state, RotaryTable(kTokens, 64, 10000.0, cos.data(), sin.data()));
  for (auto _ : state) Require(state, RotaryForward(shape, cos.data(), sin.data(), x.data()));
  SetBytes(state, 2 * x.bytes());
}
BENCHMARK_TEMPLATE(BM_Rotary, BFloat16);

template <typename T>
void BM_EmbeddingBackward(benchmark::State& state) {
  const EmbeddingShape shape = {
      .tokens = kTokens, .hidden = kHidden, .vocabulary = kVocabulary, .rows = kVocabulary};
  std::vector<int32_t> ids(kTokens);
  for (size_t t = 0; t < kTokens; ++t) ids[t] = static_cast<int32_t>(t * t % 1000);
  Tensor<T> dy(kTokens * kHidden), dtable(kVocabulary * kHidden);
  Tensor<uint8_t> workspace(EmbeddingWorkspaceBytes(shape));
  for (auto _ : state) {
    Require(state, EmbeddingBackward(shape, ids.data(), dy.data(), dtable.data(), true,
                                     workspace.data(), workspace.size()));
  }
  SetBytes(state, 3 * dy.bytes());
}
BENCHMARK_TEMPLATE(BM_EmbeddingBackward, BFloat16);

template <typename T>
void BM_CrossEntropy(benchmark::State& state) {
  const CrossEntropyShape shape = {
      .tokens = kTokens, .vocabulary = kVocabulary, .row_stride = kVocabulary};
  Tensor<T> logits(kTokens * kVocabulary), dlogits(logits.size());
  const std::vector<int32_t> targets(kTokens, 17);
  CrossEntropyResult result;
  for (auto _ : state) {
    Require(state, CrossEntropy<T>(shape, logits.data(), targets.data(), 1.0F, dlogits.data(),
                                   nullptr, &result));
  }
  SetBytes(state, 2 * logits.bytes());
}
BENCHMARK_TEMPLATE(BM_CrossEntropy, BFloat16)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace geminid::kernels

int main(int argc, char** argv) {
  geminid::kernels::RegisterMatmuls();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return EXIT_FAILURE;
  benchmark::RunSpecifiedBenchmarks();
  return EXIT_SUCCESS;
}
