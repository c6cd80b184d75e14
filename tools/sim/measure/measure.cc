#include "tools/sim/measure/measure.h"

#include <algorithm>
#include <barrier>
#include <cmath>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "tools/sim/measure/rates.h"
#include "tools/sim/measure/timed_source.h"
#include "tools/sim/schedule.h"
#include "tools/trainer/batches.h"
#include "tools/trainer/transformer.h"

namespace geminid::sim {
namespace {

using Rounds = std::vector<std::vector<zero::Moment>>;  // by round, then by moment

absl::StatusOr<zero::Layout> MakeModelLayout(const trainer::ModelParameters& parameters,
                                             int ranks) {
  std::vector<zero::TensorShape> shapes;
  for (const trainer::ParameterSpec& spec : parameters.specs) {
    shapes.push_back({.elements = spec.elements()});
  }
  return MakeLayout(shapes, {.world_size = ranks});
}

// One rank's micro-batches, each begun together with those of the other ranks.
absl::Status RunRank(const MeasureOptions& options, const zero::Layout& layout, int rank,
                     std::barrier<>* together, Rounds* rounds) {
  const auto model = trainer::MakeTransformer(options.model, zero::DataType::kBFloat16);
  const trainer::MicroBatchShape shape{options.batch / static_cast<uint64_t>(options.ranks),
                                       options.model.context};
  TimedSource source(
      model->parameters(), layout,
      ExtentBytes(2 * WorkspaceBytesBound(options.model, zero::DataType::kBFloat16, shape)));
  std::vector<uint8_t> text(options.model.context * 64);
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<uint8_t>(i * i >> 3);
  absl::StatusOr<trainer::Batches> batches =
      trainer::Batches::Create(text, {.seed = 1,
                                      .context = options.model.context,
                                      .batch = options.batch,
                                      .rank = static_cast<uint64_t>(rank),
                                      .world_size = static_cast<uint64_t>(options.ranks)});
  absl::Status status = batches.status();
  for (int round = 0; round <= options.rounds; ++round) {
    together->arrive_and_wait();
    if (!status.ok()) continue;  // the others must not wait for ever
    const trainer::MicroBatch batch = batches->Get(static_cast<uint64_t>(round), 0);
    status = model->TrainMicroBatch(source, batch, 1.0F).status();
    if (round > 0) rounds->push_back(source.TakeMoments());
  }
  return status;
}

double Median(std::vector<double>* values) {
  const auto middle = values->begin() + static_cast<std::ptrdiff_t>(values->size() / 2);
  std::nth_element(values->begin(), middle, values->end());
  return *middle;
}

// The median of each moment, and how much single ones differ from it: the standard deviation of the
// logarithm, from the median of the absolute differences, which a few outliers leave alone.
double SetTimes(const Rounds& rounds, planner::Trace* trace) {
  constexpr double kDeviationOverMedian = 1.4826;  // of a normal distribution
  std::vector<double> differences;
  for (size_t t = 0; t < trace->moments.size(); ++t) {
    std::vector<double> seconds;
    for (const std::vector<zero::Moment>& round : rounds) {
      seconds.push_back(round[t].compute_seconds);
    }
    const double median = Median(&seconds);
    trace->moments[t].compute_seconds = median;
    for (const double value : seconds) differences.push_back(std::abs(std::log(value / median)));
  }
  return kDeviationOverMedian * Median(&differences);
}

planner::Trace MakeTrace(const zero::Layout& layout, int ranks,
                         const std::vector<zero::Moment>& moments) {
  constexpr uint64_t kWeightBytes = 2;  // bf16
  planner::Trace trace;
  for (size_t c = 0; c < layout.chunks.size(); ++c) {
    const uint64_t bytes = layout.chunks[c].elements * kWeightBytes;
    const uint64_t shard = bytes / static_cast<uint64_t>(ranks);
    trace.chunks.push_back({.id = c,
                            .size_bytes = ExtentBytes(bytes),
                            .transfer_bytes = shard,
                            .gradient_bytes = shard});
  }
  for (const zero::Moment& moment : moments) {
    planner::MomentTrace traced{.workspace_bytes = ExtentBytes(moment.workspace_bytes)};
    for (const zero::Moment::Use& use : moment.uses) {
      traced.uses.push_back({use.chunk, use.invalidates});
    }
    trace.moments.push_back(std::move(traced));
  }
  return trace;
}

absl::Status MeasureRates(int ranks, uint64_t chunk_bytes, uint64_t piece_bytes, Machine* machine) {
  absl::StatusOr<CollectiveModel> collectives = MeasureCollectives(ranks, chunk_bytes);
  if (!collectives.ok()) return collectives.status();
  machine->inside_node = *collectives;
  machine->processors = static_cast<int>(std::thread::hardware_concurrency());
  machine->processor_copy_bytes_per_second = CopyBytesPerSecond(ranks, piece_bytes);
  machine->update_parameters_per_second = UpdateParametersPerSecond(ranks);
  machine->measure_bytes_per_second = NormBytesPerSecond(ranks);
  machine->request_seconds = WakeSeconds(ranks);
  machine->switch_seconds = SwitchSeconds();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Measurement> Measure(const MeasureOptions& options) {
  if (absl::Status status =
          trainer::CheckBatch(options.batch, static_cast<uint64_t>(options.ranks));
      !status.ok()) {
    return status;
  }
  const trainer::ModelParameters parameters = trainer::MakeParameters(options.model);
  absl::StatusOr<zero::Layout> layout = MakeModelLayout(parameters, options.ranks);
  if (!layout.ok()) return layout.status();
  std::barrier together(options.ranks);
  std::mutex mutex;
  absl::Status status;
  Rounds all;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Rounds rounds;
      const absl::Status done = RunRank(options, *layout, rank, &together, &rounds);
      const std::lock_guard lock(mutex);
      status.Update(done);
      for (std::vector<zero::Moment>& round : rounds) all.push_back(std::move(round));
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!status.ok()) return status;
  Measurement measurement;
  measurement.workload.trace = MakeTrace(*layout, options.ranks, all.front());
  measurement.machine.compute_noise = SetTimes(all, &measurement.workload.trace);
  measurement.machine.ranks_per_node = options.ranks;
  measurement.workload.updates = UpdatesOnHost(measurement.workload.trace);
  measurement.workload.granule_bytes = layout->granule_elements * sizeof(uint16_t);
  status = MeasureRates(options.ranks, layout->chunk_elements * sizeof(uint16_t),
                        measurement.workload.granule_bytes, &measurement.machine);
  if (!status.ok()) return status;
  return measurement;
}

}  // namespace geminid::sim
