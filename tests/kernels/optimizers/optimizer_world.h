// Ranks of a world as threads, for steps on shards.
#ifndef GEMINID_TESTS_KERNELS_OPTIMIZERS_OPTIMIZER_WORLD_H_
#define GEMINID_TESTS_KERNELS_OPTIMIZERS_OPTIMIZER_WORLD_H_

#include <barrier>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "tests/kernels/optimizers/optimizer_cases.h"

namespace geminid::kernels {

// Sums in the order of the ranks, with the same bits for all.
class ThreadSum {
 public:
  explicit ThreadSum(size_t ranks) : parts_(ranks), barrier_(static_cast<std::ptrdiff_t>(ranks)) {}

  bool Reduce(size_t rank, std::span<double> values) {
    parts_[rank].assign(values.begin(), values.end());
    barrier_.arrive_and_wait();
    std::vector<double> sum(values.size(), 0.0);
    for (const std::vector<double>& part : parts_) {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    barrier_.arrive_and_wait();
    std::copy(sum.begin(), sum.end(), values.begin());
    return true;
  }

 private:
  std::vector<std::vector<double>> parts_;
  std::barrier<> barrier_;
};

// Elements [begin, end) of the flat model.
using Range = std::pair<uint64_t, uint64_t>;
// By rank, then by segment.
using Sharding = std::vector<std::vector<Range>>;

inline Sharding OneRank(const FlatModel& model) { return {{{0, model.Elements()}}}; }

// Parameters and factors of the model under training.
struct TrainedModel {
  TrainedModel(const FlatModel& model, const OptimizerOptions& options, WeightForm form)
      : store(form, model.Elements()),
        factors(ShardedStep(options, model.tensors).FactorTotal(), 0.0F) {}

  ParameterStore store;
  std::vector<float> factors;
};

// One step of the whole world, out of place. Every rank writes its segments, backwards, into
// `after`. The factors are those of the last rank; all ranks must agree on their bits.
template <typename T>
void WorldStep(const FlatModel& model, const OptimizerOptions& options, const StepScalars& scalars,
               const Sharding& sharding, TrainedModel& before, const T* gradient,
               TrainedModel& after) {
  ThreadSum sum(sharding.size());
  std::vector<std::vector<float>> factors(sharding.size(), before.factors);
  const auto run = [&](size_t rank) {
    std::vector<Segment> segments;
    std::vector<ParameterArrays> targets;
    for (const auto& [begin, end] : sharding[rank]) {
      for (Segment s : model.Cut(begin, end)) {
        const uint64_t at = model.Begin(s.tensor) + s.offset;
        s.arrays = before.store.At(at).View();
        s.gradient = GradientArray(gradient + at);
        segments.push_back(s);
        targets.push_back(after.store.At(at));
      }
    }
    ShardedStep step(options, model.tensors);
    const auto reduce = [&](std::span<double> values) { return sum.Reduce(rank, values); };
    EXPECT_EQ(step.Prepare(scalars, segments, before.factors.data(), reduce, factors[rank].data()),
              Status::kOk);
    for (size_t i = segments.size(); i-- > 0;) {
      EXPECT_EQ(step.Apply(segments[i], targets[i]), Status::kOk);
    }
  };
  std::vector<std::thread> ranks;
  for (size_t rank = 1; rank < sharding.size(); ++rank) ranks.emplace_back(run, rank);
  run(0);
  for (std::thread& rank : ranks) rank.join();
  after.factors = factors.back();
  for (const std::vector<float>& f : factors) {
    EXPECT_TRUE(SameBits(f.data(), after.factors.data(), f.size()));
  }
}

}  // namespace geminid::kernels

#endif  // GEMINID_TESTS_KERNELS_OPTIMIZERS_OPTIMIZER_WORLD_H_
