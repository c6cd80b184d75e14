// Speed of the collectives on this host: bytes_per_second is the payload of one rank (for gather
// and scatter the whole gathered buffer) per second. Ranks are threads, each with its own
// communicator; the shm backend runs the same path in processes.
#include <benchmark/benchmark.h>

#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "collectives/reduce.h"
#include "geminid/communicator.h"
#include "tools/bench/must.h"
#include "tools/bench/size.h"
#include "tools/bench/thread_ranks.h"

namespace geminid::collectives {
namespace {

using Step = std::function<absl::Status(Communicator&, std::vector<BFloat16>& whole,
                                        std::vector<BFloat16>& other)>;

// Rank 0 is the benchmark's own thread; the others follow it through a broadcast flag.
void RunRanks(benchmark::State& state, Backend backend, const Step& step) {
  const int ranks = static_cast<int>(state.range(0));
  const auto bytes = static_cast<size_t>(state.range(1));
  auto communicators = Connect(backend, ranks);
  auto body = [&](int rank, const std::function<bool()>& go_on) {
    Communicator& communicator = *communicators[static_cast<size_t>(rank)];
    std::vector<BFloat16> whole(bytes / 2, BFloat16{0x3f80});
    std::vector<BFloat16> other(bytes / 2);
    std::vector<int32_t> more = {1};
    for (;;) {
      if (rank == 0) more[0] = go_on() ? 1 : 0;
      bench::Must(communicator.Broadcast(more, 0));
      if (more[0] == 0) return;
      bench::Must(step(communicator, whole, other));
    }
  };
  std::vector<std::thread> threads;
  for (int r = 1; r < ranks; ++r) {
    threads.emplace_back([&, r] { body(r, [] { return true; }); });
  }
  body(0, [&] { return state.KeepRunning(); });
  for (std::thread& thread : threads) thread.join();
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
}

absl::Status Gather(Communicator& c, std::vector<BFloat16>& whole, std::vector<BFloat16>&) {
  const size_t n = whole.size() / static_cast<size_t>(c.WorldSize());
  BFloat16* own = whole.data() + n * static_cast<size_t>(c.Rank());
  return c.AllGather(std::span(own, n),
                     std::span(whole.data(), n * static_cast<size_t>(c.WorldSize())));
}

absl::Status Scatter(Communicator& c, std::vector<BFloat16>& whole, std::vector<BFloat16>& other) {
  const size_t n = whole.size() / static_cast<size_t>(c.WorldSize());
  return c.ReduceScatter(std::span(whole.data(), n * static_cast<size_t>(c.WorldSize())),
                         std::span(other.data(), n), ReduceOp::kSum, {.scale = 0.5});
}

absl::Status Reduce(Communicator& c, std::vector<BFloat16>& whole, std::vector<BFloat16>&) {
  return c.AllReduce(whole, whole, ReduceOp::kSum, {.scale = 0.5});
}

absl::Status Share(Communicator& c, std::vector<BFloat16>& whole, std::vector<BFloat16>&) {
  return c.Broadcast(whole, 0);
}

absl::Status Exchange(Communicator& c, std::vector<BFloat16>& whole, std::vector<BFloat16>& other) {
  const int next = (c.Rank() + 1) % c.WorldSize();
  const int last = (c.Rank() + c.WorldSize() - 1) % c.WorldSize();
  return c.SendReceive(whole, next, other, last);
}

void Sizes(benchmark::internal::Benchmark* benchmark) {
  for (int64_t ranks : {2, 4}) {
    for (int64_t bytes : {64, 64 * 1024, 4 * 1024 * 1024, bench::Size(64, 8) * 1024 * 1024}) {
      benchmark->Args({ranks, bytes});
    }
  }
  benchmark->ArgNames({"ranks", "bytes"})->UseRealTime();
}

BENCHMARK_CAPTURE(RunRanks, shm_all_gather, Backend::kShm, Gather)->Apply(Sizes);
BENCHMARK_CAPTURE(RunRanks, shm_reduce_scatter, Backend::kShm, Scatter)->Apply(Sizes);
BENCHMARK_CAPTURE(RunRanks, shm_all_reduce, Backend::kShm, Reduce)->Apply(Sizes);
BENCHMARK_CAPTURE(RunRanks, shm_broadcast, Backend::kShm, Share)->Apply(Sizes);
BENCHMARK_CAPTURE(RunRanks, shm_exchange, Backend::kShm, Exchange)->Apply(Sizes);
BENCHMARK_CAPTURE(RunRanks, local_all_gather, Backend::kLocal, Gather)->Apply(Sizes);
BENCHMARK_CAPTURE(RunRanks, local_reduce_scatter, Backend::kLocal, Scatter)->Apply(Sizes);

BENCHMARK_CAPTURE(RunRanks, tcp_all_gather, Backend::kTcp, Gather)->Apply(Sizes);
BENCHMARK_CAPTURE(RunRanks, tcp_reduce_scatter, Backend::kTcp, Scatter)->Apply(Sizes);
BENCHMARK_CAPTURE(RunRanks, tcp_all_reduce, Backend::kTcp, Reduce)->Apply(Sizes);

void BM_Memcpy(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  std::vector<std::byte> from(bytes), to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_Memcpy)->Arg(64 * 1024 * 1024);

// Four inputs from the cache; the rate is that of the inputs read.
void BM_ReduceInOrder(benchmark::State& state) {
  const auto dtype = static_cast<DType>(state.range(0));
  constexpr size_t kInputs = 4;
  constexpr size_t kInputBytes = 64 * 1024;
  std::vector<std::vector<std::byte>> data(kInputs, std::vector<std::byte>(kInputBytes));
  std::vector<const std::byte*> inputs;
  for (const auto& input : data) inputs.push_back(input.data());
  std::vector<std::byte> out(kInputBytes);
  for (auto _ : state) {
    ReduceInOrder(inputs, out.data(), kInputBytes / SizeOf(dtype), dtype, ReduceOp::kSum, 1.0);
    benchmark::ClobberMemory();
  }
  state.SetLabel(Name(dtype));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kInputs * kInputBytes));
}
BENCHMARK(BM_ReduceInOrder)->DenseRange(0, kDTypeCount - 1);

}  // namespace
}  // namespace geminid::collectives

BENCHMARK_MAIN();
