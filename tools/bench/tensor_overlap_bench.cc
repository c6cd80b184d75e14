// How long the backward pass of a sharded linear layer takes if its products and its exchanges take
// a given time. Ranks are threads over shared memory. Before each product a rank sleeps for the
// time of that product, and after each exchange for the time of the received bytes. So two
// processors play the machines of a cluster; the matrices are small.
//
//   exchanges      their time, in hundredths of the time of the products
//   in_turn        the time if nothing else runs while a rank sleeps
//   over_in_turn   the time over in_turn
//   over_longer    the time over the longer of products and exchanges: 1 if the shorter is hidden
#include <benchmark/benchmark.h>
#include <sys/prctl.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/communicator_backend.h"
#include "tools/bench/must.h"
#include "tools/bench/size.h"
#include "tools/bench/thread_ranks.h"
#include "training/nn/parallel/tensor/parallel_linear.h"
#include "training/nn/parallel/tensor/tensor_traffic.h"

namespace geminid::collectives {
namespace {

using bench::Must;
using Seconds = std::chrono::duration<double>;

const int kRounds = bench::Size(9, 1);
const Seconds kProducts = std::chrono::milliseconds(bench::Size(48, 4));  // of a pass
constexpr LinearShape kShape = {.tokens = 128, .in = 128, .out = 128};

struct Grid {
  const char* name;
  TensorMode mode;
  int ranks;
  int depth;
  int products;  // of a backward pass
};
constexpr Grid kGrids[] = {{"1d-sequence", TensorMode::k1DSequence, 4, 1, 2},
                           {"2d", TensorMode::k2D, 4, 1, 4},
                           {"2.5d", TensorMode::k25D, 8, 2, 4},
                           {"3d", TensorMode::k3D, 8, 1, 2}};

// With `alone`, while no other thread sleeps with it.
void Stand(Seconds seconds, std::mutex* alone) {
  std::unique_lock<std::mutex> lock;
  if (alone != nullptr) lock = std::unique_lock(*alone);
  std::this_thread::sleep_until(std::chrono::steady_clock::now() + seconds);
}

// An exchange that ends no sooner than a link would have delivered the received bytes, counted from
// the arrival of the last rank.
class SlowBackend final : public CommunicatorBackend {
 public:
  SlowBackend(std::unique_ptr<Communicator> inner, Seconds per_byte, std::mutex* alone)
      : CommunicatorBackend(inner->Rank(), inner->WorldSize(), inner->timeout()),
        inner_(std::move(inner)),
        per_byte_(per_byte),
        alone_(alone) {}

  const char* BackendName() const override { return inner_->BackendName(); }
  absl::Status DoAllGather(const Operation& operation, const std::byte* in, std::byte* out,
                           const Partition& parts) override {
    return Slowly([&] { return backend().DoAllGather(operation, in, out, parts); });
  }
  absl::Status DoReduceScatter(const Operation& operation, const std::byte* in, std::byte* out,
                               const Partition& parts) override {
    return Slowly([&] { return backend().DoReduceScatter(operation, in, out, parts); });
  }
  absl::Status DoAllReduce(const Operation& operation, const std::byte* in,
                           std::byte* out) override {
    return Slowly([&] { return backend().DoAllReduce(operation, in, out); });
  }
  absl::Status DoReduce(const Operation& operation, const std::byte* in, std::byte* out) override {
    return Slowly([&] { return backend().DoReduce(operation, in, out); });
  }
  absl::Status DoBroadcast(const Operation& operation, std::byte* inout) override {
    return Slowly([&] { return backend().DoBroadcast(operation, inout); });
  }
  absl::Status DoAllToAll(const Operation& operation, const std::byte* in,
                          std::byte* out) override {
    return Slowly([&] { return backend().DoAllToAll(operation, in, out); });
  }
  absl::Status DoBarrier(const Operation& operation) override {
    return backend().DoBarrier(operation);
  }
  absl::Status DoSendReceive(const Message* send, const Message* receive) override {
    return Slowly([&] { return backend().DoSendReceive(send, receive); });
  }
  absl::StatusOr<std::unique_ptr<Communicator>> DoSubset(const std::string& key,
                                                         std::span<const int> ranks,
                                                         Messages messages) override {
    auto subset = backend().DoSubset(key, ranks, messages);
    if (!subset.ok()) return subset.status();
    return std::make_unique<Communicator>(
        std::make_unique<SlowBackend>(*std::move(subset), per_byte_, alone_));
  }

 protected:
  void DoAbort(const absl::Status& status) override {
    inner_->Abort(std::string(status.message()));
  }

 private:
  CommunicatorBackend& backend() const { return BackendOf(*inner_); }
  uint64_t ReceivedBytes() const {
    uint64_t bytes = 0;
    for (const PeerTraffic& peer : inner_->Stats().peers) bytes += peer.bytes_received;
    return bytes;
  }
  template <class Call>
  absl::Status Slowly(const Call& call) const {
    const uint64_t before = ReceivedBytes();
    absl::Status status = call();
    Stand(per_byte_ * static_cast<double>(ReceivedBytes() - before), alone_);
    return status;
  }

  const std::unique_ptr<Communicator> inner_;
  const Seconds per_byte_;
  std::mutex* const alone_;
};

class Layers {
 public:
  Layers(const Grid& grid, Seconds exchanges, bool in_turn)
      : grid_(grid),
        shape_(Must(TensorGrid::Make(grid.mode, grid.ranks, grid.depth))),
        alone_(static_cast<size_t>(grid.ranks)),
        in_turn_(in_turn) {
    const double bytes =
        TrafficOf(shape_, LinearRole::kFirst, kShape).backward_elements * sizeof(float);
    for (auto& rank : Connect(Backend::kShm, grid.ranks)) {
      ranks_.push_back(std::make_unique<Communicator>(std::make_unique<SlowBackend>(
          std::move(rank), exchanges / bytes, AloneOf(ranks_.size()))));
    }
  }

  // The median time of a backward pass of all ranks.
  double Run() {
    std::vector<std::thread> threads;
    for (auto& rank : ranks_) threads.emplace_back([&] { RunRank(*rank); });
    for (std::thread& thread : threads) thread.join();
    std::nth_element(seconds_.begin(), seconds_.begin() + kRounds / 2, seconds_.end());
    return seconds_[kRounds / 2];
  }

 private:
  std::mutex* AloneOf(size_t rank) { return in_turn_ ? &alone_[rank] : nullptr; }

  void RunRank(Communicator& rank) {
    ::prctl(PR_SET_TIMERSLACK, 1);  // nanosecond: a sleep may be too long by this
    const auto groups = Must(TensorGroups::Connect(shape_, rank));
    LinearScratch scratch;
    std::mutex* const alone = AloneOf(static_cast<size_t>(rank.Rank()));
    scratch.products().Watch([=, this] { Stand(kProducts / grid_.products, alone); });
    const auto layer = Must(ParallelLinear<float>::Make(*groups, {.shape = kShape}, scratch));
    const LinearBlocks& blocks = layer->blocks();
    const std::vector<float> x(blocks.x.elements()), w(blocks.w.elements());
    const std::vector<float> dy(blocks.y.elements());
    std::vector<float> dx(x.size()), dw(w.size());
    for (int round = -1; round < kRounds; ++round) {  // the first round touches pages
      together_.arrive_and_wait();
      const auto began = std::chrono::steady_clock::now();
      Must(layer->Backward(x, w, dy, {.x = dx, .w = dw, .bias = {}}));
      together_.arrive_and_wait();
      const Seconds took = std::chrono::steady_clock::now() - began;
      if (rank.Rank() == 0 && round >= 0) seconds_.push_back(took.count());
    }
  }

  const Grid& grid_;
  const TensorGrid shape_;
  std::vector<std::mutex> alone_;  // by rank
  const bool in_turn_;
  std::vector<std::unique_ptr<Communicator>> ranks_;
  std::barrier<> together_{grid_.ranks};
  std::vector<double> seconds_;
};

void BM_Backward(benchmark::State& state) {
  const Grid& grid = kGrids[state.range(0)];
  const Seconds exchanges = kProducts * (static_cast<double>(state.range(1)) / 100);
  for (auto _ : state) {
    const double median = Layers(grid, exchanges, /*in_turn=*/false).Run();
    const double in_turn = Layers(grid, exchanges, /*in_turn=*/true).Run();
    state.SetIterationTime(median);
    state.counters["in_turn"] = in_turn;
    state.counters["over_in_turn"] = median / in_turn;
    state.counters["over_longer"] = median / std::max(kProducts, exchanges).count();
  }
  state.SetLabel(grid.name);
}
BENCHMARK(BM_Backward)
    ->ArgsProduct({{0, 1, 2, 3}, {25, 50, 100}})
    ->ArgNames({"grid", "exchanges"})
    ->Unit(benchmark::kMillisecond)
    ->UseManualTime()
    ->Iterations(1);

}  // namespace
}  // namespace geminid::collectives

BENCHMARK_MAIN();
