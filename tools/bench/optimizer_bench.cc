// Memory-bound kernels, each measured in turn with a baseline: the same loads and stores without
// the arithmetic ("traffic"), or another form of the kernel. Ratios are medians over pairs of
// neighbouring runs, so that a machine that slows down slows both.
//
//   optimizer_bench --benchmark_filter=traffic
//
// Counters: ratio, named by the title, larger is better; GBps, every byte read or written counted
// once (the read of a cache line before an ordinary store does not count); base_GBps, the same for
// the baseline; Gparam, 1e9 parameters a second; B_param, bytes per parameter.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hwy/targets.h"
#include "kernels/numeric/accumulate/accumulate.h"
#include "kernels/numeric/norm/norm.h"
#include "kernels/optimizers/adamw/adamw.h"
#include "kernels/runtime/parallel/thread_pool.h"
#include "tools/bench/case_maker.h"
#include "tools/bench/memory_traffic.h"
#include "tools/bench/size.h"

namespace geminid {
namespace {

using kernels::BFloat16;
using kernels::Granule;
using kernels::Status;
using kernels::ThreadPool;

const int kPairs = bench::Size(9, 1);

const kernels::AdamWOptions kOptions = {.weight_decay = 0.1, .step = 10};

template <typename Gradient>
Case Split(bool in_place) {
  CaseMaker make;
  const auto weight = make.Both<BFloat16>(in_place);
  const auto remainder = make.Both<int16_t>(in_place);
  const auto avg = make.Both<float>(in_place);
  const auto sq = make.Both<float>(in_place);
  const Gradient* const gradient = make.Input<Gradient>();
  return make.Make(!in_place, [=](const Granule& g) {
    const size_t i = g.begin, n = g.end - g.begin;
    const kernels::SplitState to = {weight.second + i, remainder.second + i, avg.second + i,
                                    sq.second + i};
    if (in_place) return Require(AdamWSplitInPlace(kOptions, to, gradient + i, n));
    const kernels::ConstSplitState from = {weight.first + i, remainder.first + i, avg.first + i,
                                           sq.first + i};
    Require(AdamWSplitOutOfPlace(kOptions, from, gradient + i, n, to));
  });
}

Case Master(bool in_place) {
  CaseMaker make;
  const auto weight = make.Both<float>(in_place);
  const auto avg = make.Both<float>(in_place);
  const auto sq = make.Both<float>(in_place);
  const float* const gradient = make.Input<float>();
  return make.Make(!in_place, [=](const Granule& g) {
    const size_t i = g.begin, n = g.end - g.begin;
    const kernels::MasterState to = {weight.second + i, avg.second + i, sq.second + i};
    if (in_place) return Require(AdamWMasterInPlace(kOptions, to, gradient + i, n));
    const kernels::ConstMasterState from = {weight.first + i, avg.first + i, sq.first + i};
    Require(AdamWMasterOutOfPlace(kOptions, from, gradient + i, n, to));
  });
}

Case HalfMoments(bool in_place) {
  CaseMaker make;
  const auto weight = make.Both<BFloat16>(in_place);
  const auto remainder = make.Both<int16_t>(in_place);
  const auto avg = make.Both<BFloat16>(in_place);
  const auto sq = make.Both<BFloat16>(in_place);
  const BFloat16* const gradient = make.Input<BFloat16>();
  kernels::ParameterArrays from = {.form = kernels::WeightForm::kSplit,
                                   .bfloat16 = weight.first,
                                   .remainder = remainder.first,
                                   .state_form = kernels::StateForm::kBFloat16,
                                   .small_state = {avg.first, sq.first}};
  kernels::ParameterArrays to = from;
  to.bfloat16 = weight.second;
  to.remainder = remainder.second;
  to.small_state[0] = avg.second;
  to.small_state[1] = sq.second;
  return make.Make(!in_place, [=](const Granule& g) {
    Require(AdamWStep(kOptions, Advance(from.View(), g.begin), gradient + g.begin, g.end - g.begin,
                      Advance(to, g.begin)));
  });
}

// AdamW as in an array library: sixteen passes, temporaries in memory.
Case Unfused() {
  CaseMaker make;
  const auto w = make.Both<float>(true), m = make.Both<float>(true), v = make.Both<float>(true);
  const float* const g = make.Input<float>();
  float *const s = make.Scratch(), *const t = make.Scratch();
  Case c = make.Make(false, [](const Granule&) {});
  using Pass = std::function<void(size_t, size_t)>;
  const std::vector<Pass> passes = {
      [=](size_t i, size_t n) { MultiplyPass(m.first + i, 0.9F, m.first + i, n); },
      [=](size_t i, size_t n) { MultiplyPass(g + i, 0.1F, t + i, n); },
      [=](size_t i, size_t n) { AddPass(m.first + i, t + i, m.first + i, n); },
      [=](size_t i, size_t n) { MultiplyPass(v.first + i, 0.999F, v.first + i, n); },
      [=](size_t i, size_t n) { MultiplyPass(g + i, g + i, t + i, n); },
      [=](size_t i, size_t n) { MultiplyPass(t + i, 0.001F, t + i, n); },
      [=](size_t i, size_t n) { AddPass(v.first + i, t + i, v.first + i, n); },
      [=](size_t i, size_t n) { RootPass(v.first + i, t + i, n); },
      [=](size_t i, size_t n) { MultiplyPass(t + i, 1.01F, t + i, n); },
      [=](size_t i, size_t n) { AddPass(t + i, 1e-8F, t + i, n); },
      [=](size_t i, size_t n) { MultiplyPass(m.first + i, 1e-3F, s + i, n); },
      [=](size_t i, size_t n) { DividePass(s + i, t + i, t + i, n); },
      [=](size_t i, size_t n) { MultiplyPass(w.first + i, 1e-4F, s + i, n); },
      [=](size_t i, size_t n) { AddPass(s + i, t + i, t + i, n); },
      [=](size_t i, size_t n) { SubtractPass(w.first + i, t + i, w.first + i, n); },
  };
  c.work.run = [passes](ThreadPool& pool) {
    for (const Pass& pass : passes) {
      pool.Run(kParameters, kGranule, [&](const Granule& r) { pass(r.begin, r.end - r.begin); });
    }
  };
  return c;
}

template <typename T>
Case SquareSum() {
  CaseMaker make;
  const T* const values = make.Input<T>();
  return make.Make(false, [=](const Granule& g) {
    kernels::SquareSum total;
    Require(AddSquares(values + g.begin, g.end - g.begin, &total));
    benchmark::DoNotOptimize(total);
  });
}

Case Accumulate() {
  CaseMaker make;
  const BFloat16* const gradient = make.Input<BFloat16>();
  const auto sum = make.Both<float>(true);
  return make.Make(false, [=](const Granule& g) {
    Require(kernels::Accumulate(gradient + g.begin, 0.5F, g.end - g.begin, sum.second + g.begin));
  });
}

Work TrafficOf(const Case& c) {
  Work work = Granules([arrays = c.traffic, streaming = c.streaming](const Granule& g) {
    benchmark::DoNotOptimize(MoveTraffic(arrays, g.begin, g.end, streaming));
  });
  work.bytes_per_parameter = c.work.bytes_per_parameter;
  return work;
}

// STREAM's triad and memcpy, by MoveTraffic's rules: two reads or one, and one write.
Case Stream(int reads) {
  CaseMaker make;
  const auto both = make.Both<float>(false);
  if (reads == 2) make.Input<float>();
  (void)both;
  return make.Make(true, [](const Granule&) {});
}

// The same work with the dispatch limited to AVX2.
Work OnAvx2(Work work) {
  const auto run = work.run;
  work.run = [run](ThreadPool& pool) {
    const auto choose = [](int64_t targets) {
      hwy::SetSupportedTargetsForTest(targets);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    };
    choose(0);
    const int64_t all = hwy::SupportedTargets();
    choose(all & -HWY_AVX2);  // a lower bit is a better instruction set
    run(pool);
    choose(0);
  };
  return work;
}

double Seconds(const Work& work, ThreadPool& pool) {
  const auto begin = std::chrono::steady_clock::now();
  work.run(pool);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

enum class RatioOf { kByte, kParameter };

// Runs the two in turn. `ratio` is speed over base speed.
void Compare(benchmark::State& state, const Work& work, const Work& base, RatioOf per) {
  std::unique_ptr<ThreadPool> pool;
  Require(ThreadPool::Create({.threads = static_cast<size_t>(state.range(0)), .pin = true}, &pool));
  Seconds(base, *pool);
  Seconds(work, *pool);
  std::vector<double> ratios, times, base_times;
  for (auto _ : state) {
    base_times.push_back(Seconds(base, *pool));
    times.push_back(Seconds(work, *pool));
    state.SetIterationTime(times.back());
    ratios.push_back(base_times.back() / times.back());
  }
  const double bytes =
      per == RatioOf::kByte ? work.bytes_per_parameter / base.bytes_per_parameter : 1;
  const double parameters = static_cast<double>(kParameters);
  state.counters["ratio"] = Median(ratios) * bytes;
  state.counters["GBps"] = work.bytes_per_parameter * parameters / Median(times) / 1e9;
  state.counters["base_GBps"] = base.bytes_per_parameter * parameters / Median(base_times) / 1e9;
  state.counters["Gparam"] = parameters / Median(times) / 1e9;
  state.counters["B_param"] = work.bytes_per_parameter;
}

template <typename Make>
void Register(const std::string& name, Make make, RatioOf per, int most_threads = 2) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [make, per](benchmark::State& state) {
                                 const auto [work, base] = make();
                                 Compare(state, work, base, per);
                               })
      ->ArgName("threads")
      ->DenseRange(1, most_threads)
      ->Iterations(kPairs)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

template <typename MakeCase>
void AgainstTraffic(const std::string& name, MakeCase make) {
  Register(
      name + "/vs_traffic",
      [make] {
        const Case c = make();
        return std::pair(c.work, TrafficOf(c));
      },
      RatioOf::kByte);
}

// The arithmetic alone over the whole, on one core.
template <typename MakeCase>
void InCache(const std::string& name, MakeCase make) {
  Register(
      name + "/in_cache",
      [make] {
        const Case c = make();
        return std::pair(c.in_cache, c.work);
      },
      RatioOf::kParameter, 1);
}

template <typename MakeCase, typename MakeBase>
void Against(const std::string& name, MakeCase make, MakeBase base, RatioOf per) {
  Register(
      name,
      [=] {
        Arena::side = 1;
        const Work compared = base().work;
        Arena::side = 0;
        return std::pair(make().work, compared);
      },
      per);
}

void RegisterAgainstTraffic() {
  AgainstTraffic("SplitInPlace<bf16>", [] { return Split<BFloat16>(true); });
  AgainstTraffic("SplitInPlace<fp32>", [] { return Split<float>(true); });
  AgainstTraffic("SplitOutOfPlace<bf16>", [] { return Split<BFloat16>(false); });
  AgainstTraffic("SplitOutOfPlace<fp32>", [] { return Split<float>(false); });
  AgainstTraffic("MasterInPlace", [] { return Master(true); });
  AgainstTraffic("MasterOutOfPlace", [] { return Master(false); });
  AgainstTraffic("HalfMomentsInPlace", [] { return HalfMoments(true); });
  AgainstTraffic("HalfMomentsOutOfPlace", [] { return HalfMoments(false); });
  AgainstTraffic("Norm<bf16>", [] { return SquareSum<BFloat16>(); });
  AgainstTraffic("Norm<fp32>", [] { return SquareSum<float>(); });
  AgainstTraffic("Accumulate<bf16>", [] { return Accumulate(); });
}

void RegisterAgainstOtherForms() {
  Against(
      "SplitOutOfPlace/vs_in_place", [] { return Split<BFloat16>(false); },
      [] { return Split<BFloat16>(true); }, RatioOf::kByte);
  Against(
      "MasterOutOfPlace/vs_in_place", [] { return Master(false); }, [] { return Master(true); },
      RatioOf::kByte);
  Against(
      "SplitInPlace<bf16>/vs_MasterInPlace", [] { return Split<BFloat16>(true); },
      [] { return Master(true); }, RatioOf::kByte);
  Against(
      "SplitOutOfPlace<bf16>/vs_MasterOutOfPlace", [] { return Split<BFloat16>(false); },
      [] { return Master(false); }, RatioOf::kByte);
  Against(
      "MasterInPlace/vs_unfused", [] { return Master(true); }, [] { return Unfused(); },
      RatioOf::kParameter);
  Against(
      "HalfMomentsInPlace/vs_fp32_moments", [] { return HalfMoments(true); },
      [] { return Split<BFloat16>(true); }, RatioOf::kParameter);
  Against(
      "HalfMomentsOutOfPlace/vs_fp32_moments", [] { return HalfMoments(false); },
      [] { return Split<BFloat16>(false); }, RatioOf::kParameter);
}

void RegisterInCache() {
  InCache("SplitInPlace<bf16>", [] { return Split<BFloat16>(true); });
  InCache("MasterInPlace", [] { return Master(true); });
  InCache("HalfMomentsInPlace", [] { return HalfMoments(true); });
}

void RegisterOnAvx2() {
  const auto avx2 = [](Case (*make)(bool), bool in_place) {
    return [=] {
      Case c = make(in_place);
      c.work = OnAvx2(c.work);
      return c;
    };
  };
  for (const bool in_place : {true, false}) {
    const std::string form = in_place ? "InPlace" : "OutOfPlace";
    Against(
        "SplitOnAvx2" + form + "/vs_best", avx2(Split<BFloat16>, in_place),
        [=] { return Split<BFloat16>(in_place); }, RatioOf::kByte);
    Against(
        "MasterOnAvx2" + form + "/vs_best", avx2(Master, in_place),
        [=] { return Master(in_place); }, RatioOf::kByte);
  }
}

void RegisterStream() {
  for (const int reads : {1, 2}) {
    Register(
        reads == 1 ? "Copy" : "Triad",
        [=] {
          const Work work = TrafficOf(Stream(reads));
          return std::pair(work, work);
        },
        RatioOf::kByte);
  }
}

}  // namespace
}  // namespace geminid

int main(int argc, char** argv) {
  geminid::RegisterAgainstTraffic();
  geminid::RegisterAgainstOtherForms();
  geminid::RegisterInCache();
  geminid::RegisterOnAvx2();
  geminid::RegisterStream();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
