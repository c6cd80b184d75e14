// How long the schedules of a pipeline take on its executor, compared with their timeline, over
// links of several speeds. Four ranks are threads over shared memory; their stages sleep for the
// time of their work, so that two processors play four stages. Between them are paced links, each
// of which carries one message at a time. Every schedule takes turns with 1F1B in the same threads
// over the same kind of links, and medians are compared.
//
// A whole stage's forward takes kForward, and each half of its backward as long; a part of two
// takes half of it. Messages between parts have the same size, however many parts there are.
//
//   link             a message's time, in hundredths of a stage's forward
//   time, bubble     measured: of all micro-batches, and the share of it without work
//   predicted        by the timeline, in seconds. A message takes its link's time, but none waits
//                    for another on the link; bubble_predicted is of this timeline
//   without_link     the same if messages take no time
//   over_predicted   the time over the predicted one
//   over_1f1b        the time over 1F1B's, both measured; over_1f1b_predicted, both predicted
//
// The executor sends the gradient of the input before the stage computes those of the weights; the
// timeline assumes that too. "1f1b whole" has a stage without halves, like the trainer's.
#include <benchmark/benchmark.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tools/bench/must.h"
#include "tools/bench/paced_ranks.h"
#include "tools/bench/size.h"
#include "tools/bench/thread_ranks.h"
#include "training/nn/parallel/stages/executor.h"
#include "training/nn/parallel/stages/timeline.h"

namespace geminid::collectives {
namespace {

using bench::Must;

constexpr int kStages = 4;
constexpr int kMicroBatches = 8;
const int kRounds = bench::Size(9, 1);
const LinkSeconds kForward = std::chrono::milliseconds(bench::Size(8, 1));
constexpr LinkSeconds kLatency = std::chrono::microseconds(200);
constexpr size_t kMessageBytes = 4096;  // many fit the memory between two ranks, so a send returns

struct Kind {
  const char* name;
  PipelineKind schedule;
  int parts;
  bool halves = true;  // whether a backward has two halves
};
constexpr Kind kKinds[] = {{"1f1b", PipelineKind::k1F1B, 1},
                           {"interleaved", PipelineKind::kInterleaved, 2},
                           {"zbv", PipelineKind::kZeroBubbleV, 2},
                           {"1f1b whole", PipelineKind::k1F1B, 1, false}};

PipelineShape ShapeOf(const Kind& kind) {
  return {kind.schedule, kStages, kMicroBatches, kind.parts};
}

// The costs in seconds.
PipelineCosts CostsOf(const Kind& kind, LinkSeconds transfer) {
  const double part = kForward.count() / kind.parts;
  return {part, part, part, transfer.count()};
}

// The executor's form of a backward: its halves one after the other.
PipelineSchedule WithHalves(const PipelineSchedule& schedule) {
  PipelineSchedule halves(schedule.size());
  for (size_t stage = 0; stage < schedule.size(); ++stage) {
    for (PipelineAction action : schedule[stage]) {
      const bool both = action.work == PipelineWork::kBackward;
      if (both) action.work = PipelineWork::kBackwardInput;
      halves[stage].push_back(action);
      if (both) action.work = PipelineWork::kBackwardWeight;
      if (both) halves[stage].push_back(action);
    }
  }
  return halves;
}

// The timeline of a schedule made for links of `made_for`, on links that take `transfer`.
PipelineTimeline Predict(const Kind& kind, LinkSeconds made_for, LinkSeconds transfer) {
  const PipelineShape shape = ShapeOf(kind);
  const auto schedule = Must(MakePipelineSchedule(shape, CostsOf(kind, made_for)));
  return Must(
      RunSchedule(shape, kind.halves ? WithHalves(schedule) : schedule, CostsOf(kind, transfer)));
}

// A stage that sleeps for its work, as if another machine's processor did it.
class SleepingStage : public PipelineStage {
 public:
  explicit SleepingStage(const Kind& kind) : part_(kForward / kind.parts), halves_(kind.halves) {}
  absl::Status Forward(int, int, std::span<const float>, std::span<float>) override {
    return Stand(part_);
  }
  absl::Status BackwardInput(int, int, std::span<const float>, std::span<float>) override {
    return Stand(halves_ ? part_ : 2 * part_);
  }
  absl::Status BackwardWeight(int, int) override {
    return halves_ ? Stand(part_) : absl::OkStatus();
  }

 private:
  static absl::Status Stand(LinkSeconds time) {
    std::this_thread::sleep_until(std::chrono::steady_clock::now() + time);
    return absl::OkStatus();
  }
  const LinkSeconds part_;
  const bool halves_;
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + kRounds / 2, values.end());
  return values[kRounds / 2];
}

class Turns {
 public:
  Turns(const Kind& kind, LinkSeconds transfer) : kinds_({kind, kKinds[0]}), transfer_(transfer) {
    const LinkSeconds per_byte = (transfer - kLatency) / static_cast<double>(kMessageBytes);
    for (auto& rank : Connect(Backend::kShm, kStages)) {
      ranks_.push_back(transfer == LinkSeconds(0)
                           ? std::move(rank)
                           : PaceRanks(std::move(rank), {kLatency, per_byte}));
    }
  }

  // The times of the kind, and of 1F1B.
  std::array<std::vector<double>, 2> Run() {
    std::vector<std::thread> threads;
    for (auto& rank : ranks_) threads.emplace_back([&] { RunRank(*rank); });
    for (std::thread& thread : threads) thread.join();
    return seconds_;
  }

 private:
  void RunRank(Communicator& rank) {
    ::prctl(PR_SET_TIMERSLACK, 1);  // nanosecond: a sleep may be too long by this
    std::vector<std::unique_ptr<PipelineExecutor>> executors;
    for (const Kind& kind : kinds_) {
      executors.push_back(Must(PipelineExecutor::Make(ShapeOf(kind), CostsOf(kind, transfer_),
                                                      kMessageBytes / sizeof(float), rank)));
    }
    for (int round = -1; round < kRounds; ++round) {  // the first round touches pages
      for (size_t turn = 0; turn < kinds_.size(); ++turn) {
        SleepingStage stage(kinds_[turn]);
        together_.arrive_and_wait();
        const auto began = std::chrono::steady_clock::now();
        Must(executors[turn]->Run(stage));
        together_.arrive_and_wait();
        const LinkSeconds took = std::chrono::steady_clock::now() - began;
        if (rank.Rank() == 0 && round >= 0) seconds_[turn].push_back(took.count());
      }
    }
  }

  const std::array<Kind, 2> kinds_;
  const LinkSeconds transfer_;
  std::vector<std::unique_ptr<Communicator>> ranks_;
  std::barrier<> together_{kStages};
  std::array<std::vector<double>, 2> seconds_;
};

void BM_Pipeline(benchmark::State& state) {
  const Kind& kind = kKinds[state.range(0)];
  const LinkSeconds transfer = kForward * (static_cast<double>(state.range(1)) / 100);
  const PipelineTimeline predicted = Predict(kind, transfer, transfer);
  for (auto _ : state) {
    const auto seconds = Turns(kind, transfer).Run();
    const double median = Median(seconds[0]);
    state.SetIterationTime(median);
    state.counters["over_predicted"] = median / predicted.end;
    state.counters["over_1f1b"] = median / Median(seconds[1]);
    state.counters["bubble"] = 1 - 3 * kForward.count() * kMicroBatches / median;
  }
  state.counters["predicted"] = predicted.end;
  state.counters["without_link"] = Predict(kind, transfer, LinkSeconds(0)).end;
  state.counters["bubble_predicted"] = predicted.bubble();
  state.counters["over_1f1b_predicted"] =
      predicted.end / Predict(kKinds[0], transfer, transfer).end;
  state.SetLabel(kind.name);
}
BENCHMARK(BM_Pipeline)
    ->ArgsProduct({{0, 1, 2, 3}, {0, 25, 50}})
    ->ArgNames({"kind", "link"})
    ->Unit(benchmark::kMillisecond)
    ->UseManualTime()
    ->Iterations(1);

}  // namespace
}  // namespace geminid::collectives

BENCHMARK_MAIN();
