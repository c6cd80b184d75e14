// AdamW against the memory bandwidth that the same run measures: copy and triad are what the
// machine can do, the optimizer should be near them.
//
//   optimizer_bench --benchmark_filter='AdamW|Copy|Triad'
//
// Counters: bytes_per_second counts every byte read or written once, as STREAM does (a cache line
// that an ordinary store first has to read is not counted); parameters is parameters a second;
// bytes_per_parameter is what the form must move.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/aligned_allocator.h"
#include "kernels/accumulate/accumulate.h"
#include "kernels/adamw/adamw.h"
#include "kernels/cast/cast.h"
#include "kernels/norm/norm.h"

namespace geminid {
namespace {

using kernels::BFloat16;
using kernels::Status;

// Per thread: 416 MB of optimizer traffic, far beyond any cache.
constexpr size_t kParameters = size_t{16} << 20;

// `count` elements on a cache line, with values of ordinary size: as bf16 and fp32 near 0.02.
template <typename T>
class Array {
 public:
  explicit Array(size_t count) : storage_(hwy::AllocateAligned<T>(count)) {
    std::memset(static_cast<void*>(storage_.get()), 0x3C, count * sizeof(T));
  }
  T* get() const { return storage_.get(); }

 private:
  hwy::AlignedFreeUniquePtr<T[]> storage_;
};

void Report(benchmark::State& state, size_t bytes_per_parameter) {
  const auto parameters =
      static_cast<double>(state.iterations()) * static_cast<double>(kParameters);
  state.counters["bytes_per_parameter"] =
      benchmark::Counter(static_cast<double>(bytes_per_parameter), benchmark::Counter::kAvgThreads);
  state.counters["parameters"] = benchmark::Counter(parameters, benchmark::Counter::kIsRate);
  state.SetBytesProcessed(
      static_cast<int64_t>(parameters * static_cast<double>(bytes_per_parameter)));
}

struct Split {
  explicit Split(size_t count)
      : weight(count), remainder(count), exp_avg(count), exp_avg_sq(count) {}
  kernels::SplitState View() const {
    return {weight.get(), remainder.get(), exp_avg.get(), exp_avg_sq.get()};
  }
  kernels::ConstSplitState ConstView() const {
    return {weight.get(), remainder.get(), exp_avg.get(), exp_avg_sq.get()};
  }
  Array<BFloat16> weight;
  Array<int16_t> remainder;
  Array<float> exp_avg;
  Array<float> exp_avg_sq;
};

struct Master {
  explicit Master(size_t count) : weight(count), exp_avg(count), exp_avg_sq(count) {}
  kernels::MasterState View() const { return {weight.get(), exp_avg.get(), exp_avg_sq.get()}; }
  kernels::ConstMasterState ConstView() const {
    return {weight.get(), exp_avg.get(), exp_avg_sq.get()};
  }
  Array<float> weight;
  Array<float> exp_avg;
  Array<float> exp_avg_sq;
};

void Require(benchmark::State& state, Status status) {
  if (status != Status::kOk) state.SkipWithError(kernels::StatusName(status));
}

const kernels::AdamWOptions kOptions = {.weight_decay = 0.1, .step = 10};

template <typename Gradient>
void AdamWSplitOutOfPlace(benchmark::State& state) {
  const Split from(kParameters), to(kParameters);
  const Array<Gradient> gradient(kParameters);
  for (auto _ : state) {
    Require(state, kernels::AdamWSplitOutOfPlace(kOptions, from.ConstView(), gradient.get(),
                                                 kParameters, to.View()));
  }
  Report(state, 24 + sizeof(Gradient));
}

// The new arrays are not aligned alike, so the kernel takes ordinary stores: what streaming saves.
void AdamWSplitOutOfPlaceOrdinaryStores(benchmark::State& state) {
  const Split from(kParameters), to(kParameters + 1);
  const Array<BFloat16> gradient(kParameters);
  kernels::SplitState target = to.View();
  ++target.exp_avg;
  for (auto _ : state) {
    Require(state, kernels::AdamWSplitOutOfPlace(kOptions, from.ConstView(), gradient.get(),
                                                 kParameters, target));
  }
  Report(state, 26);
}

template <typename Gradient>
void AdamWSplitInPlace(benchmark::State& state) {
  const Split both(kParameters);
  const Array<Gradient> gradient(kParameters);
  for (auto _ : state) {
    Require(state, kernels::AdamWSplitInPlace(kOptions, both.View(), gradient.get(), kParameters));
  }
  Report(state, 24 + sizeof(Gradient));
}

void AdamWMasterOutOfPlace(benchmark::State& state) {
  const Master from(kParameters), to(kParameters);
  const Array<float> gradient(kParameters);
  for (auto _ : state) {
    Require(state, kernels::AdamWMasterOutOfPlace(kOptions, from.ConstView(), gradient.get(),
                                                  kParameters, to.View()));
  }
  Report(state, 28);
}

void AdamWMasterInPlace(benchmark::State& state) {
  const Master both(kParameters);
  const Array<float> gradient(kParameters);
  for (auto _ : state) {
    Require(state, kernels::AdamWMasterInPlace(kOptions, both.View(), gradient.get(), kParameters));
  }
  Report(state, 28);
}

// memcpy, 12 bytes in and 12 out for every parameter: the state's bytes without the arithmetic.
void Copy(benchmark::State& state) {
  const Array<float> from(3 * kParameters), to(3 * kParameters);
  for (auto _ : state) {
    std::memcpy(to.get(), from.get(), 3 * kParameters * sizeof(float));
    benchmark::ClobberMemory();
  }
  Report(state, 24);
}

// STREAM's triad a = b + s c, compiled as it stands: ordinary stores.
void Triad(benchmark::State& state) {
  const Array<float> a(kParameters), b(kParameters), c(kParameters);
  float* const out = a.get();
  const float* const x = b.get();
  const float* const y = c.get();
  for (auto _ : state) {
    for (size_t i = 0; i < kParameters; ++i) out[i] = x[i] + 3.0f * y[i];
    benchmark::ClobberMemory();
  }
  Report(state, 12);
}

void SquareSum(benchmark::State& state) {
  const Array<BFloat16> gradient(kParameters);
  for (auto _ : state) {
    kernels::SquareSum total;
    Require(state, kernels::AddSquares(gradient.get(), kParameters, &total));
    benchmark::DoNotOptimize(total);
  }
  Report(state, 2);
}

void AccumulateBFloat16(benchmark::State& state) {
  const Array<BFloat16> gradient(kParameters);
  const Array<float> sum(kParameters);
  for (auto _ : state) {
    Require(state, kernels::Accumulate(gradient.get(), 0.5f, kParameters, sum.get()));
  }
  Report(state, 10);
}

void CastToBFloat16(benchmark::State& state) {
  const Array<float> from(kParameters);
  const Array<BFloat16> to(kParameters);
  for (auto _ : state) {
    Require(state, kernels::CastToBFloat16(from.get(), kParameters, to.get()));
  }
  Report(state, 6);
}

void OneAndTwoThreads(benchmark::internal::Benchmark* b) {
  b->Threads(1)->Threads(2)->UseRealTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK(Copy)->Apply(OneAndTwoThreads);
BENCHMARK(Triad)->Apply(OneAndTwoThreads);
BENCHMARK(AdamWSplitOutOfPlace<BFloat16>)->Apply(OneAndTwoThreads);
BENCHMARK(AdamWSplitOutOfPlace<float>)->Apply(OneAndTwoThreads);
BENCHMARK(AdamWSplitOutOfPlaceOrdinaryStores)->Apply(OneAndTwoThreads);
BENCHMARK(AdamWSplitInPlace<BFloat16>)->Apply(OneAndTwoThreads);
BENCHMARK(AdamWSplitInPlace<float>)->Apply(OneAndTwoThreads);
BENCHMARK(AdamWMasterOutOfPlace)->Apply(OneAndTwoThreads);
BENCHMARK(AdamWMasterInPlace)->Apply(OneAndTwoThreads);
BENCHMARK(SquareSum)->Apply(OneAndTwoThreads);
BENCHMARK(AccumulateBFloat16)->Apply(OneAndTwoThreads);
BENCHMARK(CastToBFloat16)->Apply(OneAndTwoThreads);

}  // namespace
}  // namespace geminid

BENCHMARK_MAIN();
