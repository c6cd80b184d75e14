// How far the collectives of two ranks in shared memory are from the memory's limit, and from TCP
// over loopback. Two ranks, as threads, copy memory, call the one and call the other, in turns. The
// ranks begin each round together, and medians are compared, so a busy machine slows all alike.
//
// The bound: a rank needs at least the memory traffic of reading its inputs and writing its outputs
// once, at the rate of simultaneous copies by both ranks. Of S bytes, n = S / 2:
//
//   all-gather       reads the peer's n and writes it:            2 n, a copy of n
//   reduce-scatter   reads its own and the peer's n, writes n:    3 n
//   all-reduce       both:                                        5 n
//
//   of_bound    the bound's time over the collective's; above 1 only by the effect of caches
//   over_tcp    TCP's time over the collective's
#include <benchmark/benchmark.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "geminid/communicator.h"
#include "tools/bench/must.h"
#include "tools/bench/size.h"
#include "tools/bench/thread_ranks.h"

namespace geminid::collectives {
namespace {

constexpr int kRanks = 2;
const int kRounds = bench::Size(15, 1);
constexpr size_t kLeastBytes = size_t{8} << 20;  // moved by a round

struct Collective {
  const char* name;
  // Reads and writes of a rank, in halves of the buffer.
  double halves_moved;
  std::function<absl::Status(Communicator&, std::vector<float>& whole, std::vector<float>& half)>
      call;
};

const Collective kCollectives[] = {
    {"all_gather", 2,
     [](Communicator& c, std::vector<float>& whole, std::vector<float>& half) {
       const size_t first = half.size() * static_cast<size_t>(c.Rank());
       return c.AllGather(std::span(whole).subspan(first, half.size()), whole);
     }},
    {"reduce_scatter", 3,
     [](Communicator& c, std::vector<float>& whole, std::vector<float>& half) {
       return c.ReduceScatter(whole, half);
     }},
    {"all_reduce", 5,
     [](Communicator& c, std::vector<float>& whole, std::vector<float>&) {
       return c.AllReduce(whole, whole);
     }},
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + kRounds / 2, values.end());
  return values[kRounds / 2];
}

struct Seconds {
  std::vector<double> copy, shm, tcp;
};

class Rounds {
 public:
  Rounds(const Collective& collective, size_t bytes)
      : collective_(collective),
        count_(bytes / sizeof(float)),
        calls_(static_cast<int>(std::max<size_t>(1, kLeastBytes / bytes))),
        shm_(Connect(Backend::kShm, kRanks)),
        tcp_(Connect(Backend::kTcp, kRanks)) {}

  Seconds Run() {
    std::thread other([this] { RunRank(1); });
    RunRank(0);
    other.join();
    return seconds_;
  }

 private:
  void RunRank(int rank) {
    const auto index = static_cast<size_t>(rank);
    std::vector<float> whole(count_, 1), half(count_ / kRanks, 1), copied(count_ / kRanks);
    for (int round = -1; round < kRounds; ++round) {  // the first round touches pages
      Time(rank, round, &seconds_.copy, [&] {
        std::memcpy(copied.data(), half.data(), half.size() * sizeof(float));
        benchmark::ClobberMemory();
      });
      Time(rank, round, &seconds_.shm, [&] { Call(*shm_[index], whole, half); });
      Time(rank, round, &seconds_.tcp, [&] { Call(*tcp_[index], whole, half); });
    }
  }

  void Call(Communicator& communicator, std::vector<float>& whole, std::vector<float>& half) {
    bench::Must(collective_.call(communicator, whole, half));
  }

  // From the time when both ranks begin to the time when both have ended.
  void Time(int rank, int round, std::vector<double>* seconds, const std::function<void()>& call) {
    together_.arrive_and_wait();
    const auto began = std::chrono::steady_clock::now();
    for (int i = 0; i < calls_; ++i) call();
    together_.arrive_and_wait();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    if (rank == 0 && round >= 0) seconds->push_back(took.count() / calls_);
  }

  const Collective& collective_;
  const size_t count_;
  const int calls_;  // in a row, so that wake-ups at the ends count little
  const std::vector<std::unique_ptr<Communicator>> shm_;
  const std::vector<std::unique_ptr<Communicator>> tcp_;
  std::barrier<> together_{kRanks};
  Seconds seconds_;
};

void BM_OfBound(benchmark::State& state) {
  const Collective& collective = kCollectives[state.range(0)];
  const auto bytes = static_cast<size_t>(state.range(1));
  for (auto _ : state) {
    const Seconds seconds = Rounds(collective, bytes).Run();
    const double shm = Median(seconds.shm);
    state.SetIterationTime(shm);
    // A copy of one half reads and writes two.
    state.counters["of_bound"] = Median(seconds.copy) * collective.halves_moved / 2 / shm;
    state.counters["over_tcp"] = Median(seconds.tcp) / shm;
  }
  state.SetLabel(collective.name);
  state.SetBytesProcessed(state.iterations() * state.range(1));
}
BENCHMARK(BM_OfBound)
    ->ArgsProduct({{0, 1, 2}, {64 << 10, bench::Size(64, 1) << 20}})
    ->ArgNames({"collective", "bytes"})
    ->UseManualTime()
    ->Iterations(1);

}  // namespace
}  // namespace geminid::collectives

BENCHMARK_MAIN();
