#include "kernels/optimizers/sharded_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "kernels/optimizers/kind_options.h"
#include "tests/kernels/optimizers/optimizer_cases.h"
#include "tests/kernels/optimizers/optimizer_world.h"

namespace geminid::kernels {
namespace {

constexpr int kSteps = 3;

// Random shards, most of them within a row, assigned to the ranks at random.
Sharding RandomSharding(const FlatModel& model, size_t ranks, size_t pieces, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<uint64_t> cuts = {0, model.Elements()};
  for (size_t i = 1; i < pieces; ++i) cuts.push_back(random() % model.Elements());
  std::sort(cuts.begin(), cuts.end());
  Sharding sharding(ranks);
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    sharding[random() % ranks].push_back({cuts[i], cuts[i + 1]});
  }
  return sharding;
}

// Equal consecutive shards, as ranks have them.
Sharding EqualSharding(const FlatModel& model, size_t ranks) {
  Sharding sharding(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    sharding[r] = {{model.Elements() * r / ranks, model.Elements() * (r + 1) / ranks}};
  }
  return sharding;
}

TrainedModel Train(const OptimizerCase& c, const Sharding& sharding) {
  const FlatModel model = FlatModel::Small();
  std::mt19937 random(31);
  TrainedModel now(model, c.options, WeightForm::kSplit);
  TrainedModel next(model, c.options, WeightForm::kSplit);
  now.store.SetMasters(RandomValues(random, model.Elements(), 0.05));
  for (int i = 1; i <= kSteps; ++i) {
    const std::vector<float> gradient = RandomGradient(random, model.Elements());
    std::vector<BFloat16> narrow(gradient.size());
    std::transform(gradient.begin(), gradient.end(), narrow.begin(), BFloat16::FromFloat);
    WorldStep(model, c.options, ScalarsOf(c, i), sharding, now, narrow.data(), next);
    std::swap(now, next);
  }
  return now;
}

void ExpectEqualToRounding(TrainedModel& a, TrainedModel& b) {
  constexpr double kTolerance = 1e-6;
  const std::vector<float> wa = a.store.Masters(), wb = b.store.Masters();
  for (size_t i = 0; i < wa.size(); ++i) {
    ASSERT_NEAR(wa[i], wb[i], kTolerance * (std::fabs(wa[i]) + 0.01)) << i;
  }
  for (size_t i = 0; i < a.factors.size(); ++i) {
    ASSERT_NEAR(a.factors[i], b.factors[i], kTolerance * a.factors[i]) << i;
  }
}

TEST(ShardedStep, EveryWayOfSharding_EqualToTheDenseStep) {
  const FlatModel model = FlatModel::Small();
  for (const OptimizerCase& c : AllCases()) {
    SCOPED_TRACE(c.name);
    TrainedModel dense = Train(c, OneRank(model));
    std::vector<Sharding> shardings = {EqualSharding(model, 2), EqualSharding(model, 4)};
    for (unsigned seed = 0; seed < 4; ++seed) {
      shardings.push_back(RandomSharding(model, 1 + seed % 3, 20 + 30 * seed, seed));
    }
    for (const Sharding& sharding : shardings) {
      TrainedModel sharded = Train(c, sharding);
      if (Elementwise(c)) {
        ASSERT_TRUE(sharded.store.SameAs(dense.store));
      } else {
        ExpectEqualToRounding(dense, sharded);
      }
    }
  }
}

TEST(ShardedStep, SameShardingAgain_SameBits) {
  const FlatModel model = FlatModel::Small();
  for (const OptimizerCase& c : AllCases()) {
    SCOPED_TRACE(c.name);
    const Sharding sharding = RandomSharding(model, 3, 40, 5);
    TrainedModel first = Train(c, sharding), second = Train(c, sharding);
    EXPECT_TRUE(first.store.SameAs(second.store)) << c.name;
    EXPECT_EQ(first.factors, second.factors) << c.name;
  }
}

// One rank with one segment per tensor, and with everything that a test may change.
struct Bench {
  explicit Bench(const OptimizerCase& c, FlatModel m = FlatModel::Small())
      : model(std::move(m)),
        before(model, c.options, WeightForm::kFloat),
        after(model, c.options, WeightForm::kFloat),
        scalars(ScalarsOf(c, 1)),
        step(c.options, model.tensors) {
    std::mt19937 random(32);
    before.store.SetMasters(RandomValues(random, model.Elements(), 0.05));
    gradient = RandomGradient(random, model.Elements());
    for (Segment s : model.Cut(0, model.Elements())) {
      s.arrays = before.store.At(At(s)).View();
      s.gradient = GradientArray(gradient.data() + At(s));
      segments.push_back(s);
    }
  }
  uint64_t At(const Segment& s) const { return model.Begin(s.tensor) + s.offset; }
  Status Prepare(const ReduceSum& reduce) {
    return step.Prepare(scalars, segments, before.factors.data(), reduce, after.factors.data());
  }
  Status Prepare() {
    return Prepare([](std::span<double>) { return true; });
  }
  Status Apply(const ShardedStep& by, ParameterStore& to) {
    for (const Segment& s : segments) {
      if (const Status status = by.Apply(s, to.At(At(s))); status != Status::kOk) return status;
    }
    return Status::kOk;
  }

  FlatModel model;
  TrainedModel before, after;
  StepScalars scalars;
  ShardedStep step;
  std::vector<float> gradient;
  std::vector<Segment> segments;
};

TEST(ShardedStep, RestoredFromItsSums_SameBits) {
  for (const OptimizerCase& c : AllCases()) {
    SCOPED_TRACE(c.name);
    Bench bench(c);
    ASSERT_EQ(bench.Prepare(), Status::kOk);
    const std::vector<double> kept(bench.step.TensorSums().begin(), bench.step.TensorSums().end());
    ASSERT_EQ(bench.Apply(bench.step, bench.after.store), Status::kOk);
    ShardedStep restored(c.options, bench.model.tensors);
    ASSERT_EQ(restored.Restore(bench.scalars, kept, bench.after.factors.data()), Status::kOk);
    ParameterStore again(WeightForm::kFloat, bench.model.Elements());
    ASSERT_EQ(bench.Apply(restored, again), Status::kOk);
    EXPECT_TRUE(again.SameAs(bench.after.store)) << c.name;
  }
}

TEST(ShardedStep, InPlace_SameBitsAsOutOfPlace) {
  for (const OptimizerCase& c : AllCases()) {
    SCOPED_TRACE(c.name);
    Bench bench(c);
    ASSERT_EQ(bench.Prepare(), Status::kOk);
    ASSERT_EQ(bench.Apply(bench.step, bench.after.store), Status::kOk);
    ASSERT_EQ(bench.Apply(bench.step, bench.before.store), Status::kOk);
    EXPECT_TRUE(bench.before.store.SameAs(bench.after.store)) << c.name;
  }
}

TEST(ShardedStep, FrozenTensorAndPadding_Copied) {
  for (const OptimizerCase& c : AllCases()) {
    SCOPED_TRACE(c.name);
    FlatModel model = FlatModel::Small();
    model.tensors[0].frozen = true;
    Bench bench(c, model);
    bench.segments[2].tensor = kNoTensor;
    ASSERT_EQ(bench.Prepare(), Status::kOk);
    for (const Segment& s : bench.segments) {
      const uint64_t at = s.tensor == kNoTensor ? bench.model.Begin(2) : bench.At(s);
      ASSERT_EQ(bench.step.Apply(s, bench.after.store.At(at)), Status::kOk);
    }
    const std::vector<float> old_weights = bench.before.store.Masters();
    const std::vector<float> new_weights = bench.after.store.Masters();
    const auto same = [&](size_t t) {
      return std::equal(old_weights.begin() + model.Begin(t),
                        old_weights.begin() + model.Begin(t + 1),
                        new_weights.begin() + model.Begin(t));
    };
    EXPECT_TRUE(same(0) && !same(1) && same(2) && !same(3)) << c.name;
  }
}

// The options of the whole step with tensor 1's own values.
OptimizerOptions WithOwn(OptimizerOptions options, const TensorOptions& own) {
  VisitOptions(options, [&](auto& o) {
    if constexpr (requires { o.beta1; }) o.beta1 = *own.beta1;
    if constexpr (requires { o.momentum; }) o.momentum = *own.beta1;
    if constexpr (requires { o.beta2; }) o.beta2 = *own.beta2;
    if constexpr (requires { o.epsilon; }) o.epsilon = *own.epsilon;
  });
  return options;
}

TEST(ShardedStep, TensorWithUpdatesBetasAndEpsilonOfItsOwn_SteppedAsIfAllHadThem) {
  constexpr size_t kOwn = 1;
  for (const OptimizerCase& c : AllCases()) {
    SCOPED_TRACE(c.name);
    Bench bench(c);
    TensorOptions own = bench.model.tensors[kOwn];
    own.beta1 = StateArrays(c.options) > 0 ? 0.625 : 0.0;
    own.beta2 = 0.75;
    own.epsilon = 1e-3;
    own.step = 7;
    bench.step.SetTensor(kOwn, own);
    OptimizerCase all = c;
    all.options = WithOwn(c.options, own);
    Bench whole(all);
    whole.scalars.step = own.step;
    Bench plain(c);
    for (Bench* each : {&bench, &whole, &plain}) {
      ASSERT_EQ(each->Prepare(), Status::kOk);
      ASSERT_EQ(each->Apply(each->step, each->after.store), Status::kOk);
    }
    const std::vector<float> got = bench.after.store.Masters();
    const std::vector<float> expected[] = {plain.after.store.Masters(),
                                           whole.after.store.Masters()};
    for (size_t t = 0; t < bench.model.tensors.size(); ++t) {
      const auto& like = expected[t == kOwn ? 1 : 0];
      EXPECT_TRUE(std::equal(got.begin() + static_cast<ptrdiff_t>(bench.model.Begin(t)),
                             got.begin() + static_cast<ptrdiff_t>(bench.model.Begin(t + 1)),
                             like.begin() + static_cast<ptrdiff_t>(bench.model.Begin(t))))
          << "tensor " << t;
    }
    // For SGD without momentum nothing differs, and a first step of Lion has the same sign.
    if (StateArrays(c.options) > 0 && c.options.kind != OptimizerKind::kLion) {
      EXPECT_NE(expected[0], expected[1]);
    }
  }
}

TEST(ShardedStep, ReduceCounts_AsSaid) {
  for (const OptimizerCase& c : AllCases()) {
    SCOPED_TRACE(c.name);
    Bench bench(c);
    int calls = 0;
    ASSERT_EQ(bench.Prepare([&](std::span<double>) { return ++calls > 0; }), Status::kOk);
    const int expected = c.options.kind == OptimizerKind::kCame        ? 3
                         : c.options.kind == OptimizerKind::kAdafactor ? 2
                         : NeedsSums(c.options.kind)                   ? 1
                                                                       : 0;
    EXPECT_EQ(calls, expected) << c.name;
  }
}

// A device does this with arrays that the host cannot reach.
TEST(ShardedStep, NormsAddedByAnother_SameBitsInPiecesOfTrees) {
  constexpr size_t kCount = 2 * kNormsTree + 1000;
  std::mt19937 random(33);
  std::vector<float> masters = RandomValues(random, kCount, 0.05);
  std::vector<float> first(kCount, 0.01F), second(kCount, 0.02F);
  const std::vector<float> gradient = RandomGradient(random, kCount);
  Segment segment;
  segment.tensor = 0;
  segment.count = kCount;
  segment.arrays.master = masters.data();
  segment.arrays.state[0] = first.data();
  segment.arrays.state[1] = second.data();
  segment.gradient = GradientArray(gradient.data());
  const ReduceSum alone = [](std::span<double>) { return true; };
  for (const OptimizerKind kind : {OptimizerKind::kLamb, OptimizerKind::kLars}) {
    OptimizerOptions options;
    options.kind = kind;
    ShardedStep whole(options, {{.shape = {1, kCount}}}), pieces(options, {{.shape = {1, kCount}}});
    const StepScalars scalars = {.learning_rate = 0.1, .gradient_norm = 5};
    ASSERT_EQ(whole.Prepare(scalars, {&segment, 1}, nullptr, alone, nullptr), Status::kOk);
    StepElsewhere add;
    add.add_sums = [&](SumPass pass, std::span<const Segment> segments, std::span<double> sums) {
      EXPECT_EQ(segments.size(), 1u);
      for (size_t begin = 0; begin < kCount; begin += kNormsTree) {
        Segment part = segment;
        part.offset = begin;
        part.count = std::min(kNormsTree, kCount - begin);
        part.arrays = Advance(segment.arrays, begin);
        part.gradient = Advance(segment.gradient, begin);
        EXPECT_EQ(pieces.AddSums(pass, part, sums.data()), Status::kOk);
      }
      return Status::kOk;
    };
    ASSERT_EQ(pieces.Prepare(scalars, {&segment, 1}, nullptr, alone, nullptr, add), Status::kOk);
    EXPECT_TRUE(std::ranges::equal(pieces.TensorSums(), whole.TensorSums()));
    EXPECT_GT(whole.TensorSums()[1], 0);
    // A failure of the callback is the step's failure.
    StepElsewhere fails;
    fails.add_sums = [](auto, auto, auto) { return Status::kCallbackFailed; };
    EXPECT_EQ(pieces.Prepare(scalars, {&segment, 1}, nullptr, alone, nullptr, fails),
              Status::kCallbackFailed);
  }
}

// The host then has no scales for a segment of its own.
TEST(ShardedStep, FactorsMadeElsewhere_HostAppliesNothing) {
  constexpr size_t kRows = 6, kColumns = 5, kCount = kRows * kColumns;
  std::mt19937 random(34);
  std::vector<float> masters = RandomValues(random, kCount, 0.05);
  const std::vector<float> gradient = RandomGradient(random, kCount);
  Segment segment;
  segment.tensor = 0;
  segment.count = kCount;
  segment.arrays.master = masters.data();
  segment.gradient = GradientArray(gradient.data());
  ParameterArrays to;
  to.master = masters.data();
  const ReduceSum alone = [](std::span<double>) { return true; };
  OptimizerOptions options;
  options.kind = OptimizerKind::kAdafactor;
  ShardedStep step(options, {{.shape = {kRows, kColumns}}});
  std::vector<float> factors(step.FactorTotal());
  const auto prepare = [&](const StepElsewhere& elsewhere) {
    return step.Prepare({.learning_rate = 0.1}, {&segment, 1}, factors.data(), alone,
                        factors.data(), elsewhere);
  };
  ASSERT_EQ(prepare({}), Status::kOk);
  EXPECT_EQ(step.Scales().size(), factors.size());
  EXPECT_EQ(step.Apply(segment, to), Status::kOk);
  StepElsewhere elsewhere;
  elsewhere.add_sums = [](auto, auto, std::span<double> sums) {
    std::ranges::fill(sums, 1.0);
    return Status::kOk;
  };
  elsewhere.make_factors = [](auto, auto) { return Status::kOk; };
  ASSERT_EQ(prepare(elsewhere), Status::kOk);
  EXPECT_TRUE(step.ready());
  EXPECT_TRUE(step.Scales().empty());
  EXPECT_EQ(step.Apply(segment, to), Status::kUnsupported);
  // A rank whose factors cannot be made still reduces, so that no other rank waits for it.
  bool told = false;
  const ReduceSum watch = [&](std::span<double> sums) {
    told = std::isnan(sums[0]);
    return true;
  };
  elsewhere.make_factors = [](auto, auto) { return Status::kCallbackFailed; };
  EXPECT_EQ(step.Prepare({.learning_rate = 0.1}, {&segment, 1}, nullptr, watch, nullptr, elsewhere),
            Status::kCallbackFailed);
  EXPECT_TRUE(told);
  EXPECT_FALSE(step.ready());
}

TEST(ShardedStep, FailedReduce_NothingCanBeApplied) {
  for (const OptimizerCase& c : AllCases()) {
    SCOPED_TRACE(c.name);
    if (Elementwise(c)) continue;
    Bench bench(c);
    EXPECT_EQ(bench.Prepare([](std::span<double>) { return false; }), Status::kCallbackFailed);
    EXPECT_EQ(bench.Prepare(nullptr), Status::kCallbackFailed);
    EXPECT_EQ(bench.Apply(bench.step, bench.after.store), Status::kInvalidParameter) << c.name;
  }
}

TEST(ShardedStep, InfiniteGradient_RefusedBeforeCommit) {
  for (const OptimizerCase& c : AllCases()) {
    SCOPED_TRACE(c.name);
    if (Elementwise(c)) continue;
    Bench bench(c);
    bench.gradient[17] = std::numeric_limits<float>::infinity();
    EXPECT_EQ(bench.Prepare(), Status::kInvalidParameter) << c.name;
  }
}

TEST(ShardedStep, OneRankWithBadSegment_AllFailAndNoneHangs) {
  for (const OptimizerCase& c : AllCases()) {
    SCOPED_TRACE(c.name);
    if (Elementwise(c)) continue;
    Bench good(c), bad(c);
    bad.segments[1].arrays.master = nullptr;
    ThreadSum sum(2);
    Status of_bad = Status::kOk;
    std::thread other([&] {
      of_bad = bad.Prepare([&](std::span<double> values) { return sum.Reduce(1, values); });
    });
    const Status of_good =
        good.Prepare([&](std::span<double> values) { return sum.Reduce(0, values); });
    other.join();
    EXPECT_EQ(of_bad, Status::kNullPointer) << c.name;
    EXPECT_EQ(of_good, Status::kInvalidParameter) << c.name;
  }
}

TEST(ShardedStep, BadInput_Refused) {
  for (const OptimizerCase& c : AllCases()) {
    SCOPED_TRACE(c.name);
    const auto prepared = [&](auto change) {
      Bench bench(c);
      change(bench);
      return bench.Prepare();
    };
    EXPECT_EQ(prepared([](Bench& b) { b.scalars.step = 0; }), Status::kInvalidParameter);
    EXPECT_EQ(prepared([](Bench& b) { b.scalars.learning_rate = NAN; }), Status::kInvalidParameter);
    EXPECT_EQ(prepared([](Bench& b) { b.scalars.learning_rate = -1; }), Status::kInvalidParameter);
    EXPECT_EQ(prepared([](Bench& b) { b.scalars.grad_scale = INFINITY; }),
              Status::kInvalidParameter);
    EXPECT_EQ(prepared([](Bench& b) { b.scalars.grad_scale = NAN; }),
              NeedsSums(c.options.kind) ? Status::kInvalidParameter : Status::kOk);
    EXPECT_EQ(prepared([](Bench& b) { b.segments[0].tensor = 9; }), Status::kInvalidShape);
    EXPECT_EQ(prepared([](Bench& b) { b.segments[0].offset = 1; }), Status::kInvalidShape);
    EXPECT_EQ(prepared([](Bench& b) { b.segments[0].offset = UINT64_MAX; }), Status::kInvalidShape);
    EXPECT_EQ(ShardedStep(c.options, {{.shape = {0, 4}}}).status(), Status::kInvalidShape);
    EXPECT_EQ(ShardedStep(c.options, {{.shape = {uint64_t{1} << 40, uint64_t{1} << 40}}}).status(),
              Status::kInvalidShape);
    EXPECT_EQ(ShardedStep(c.options, {{.shape = {2, 4}, .weight_decay = -1.0}}).status(),
              Status::kInvalidParameter);
    EXPECT_EQ(ShardedStep(c.options, {{.shape = {2, 4}, .learning_rate_scale = NAN}}).status(),
              Status::kInvalidParameter);
    Bench bench(c);
    EXPECT_EQ(bench.Apply(bench.step, bench.after.store), Status::kInvalidParameter);
    EXPECT_EQ(bench.step.Restore(bench.scalars, {}, bench.after.factors.data()),
              Status::kInvalidShape);
  }
}

}  // namespace
}  // namespace geminid::kernels
