// The contract of every device's operations: the bits of the host's kernels, in stream order.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/numeric/accumulate/accumulate.h"
#include "kernels/numeric/norm/norm.h"
#include "kernels/numeric/split_master/split_master.h"
#include "kernels/optimizers/sharded_step.h"
#include "tests/client/device/device_implementations.h"

namespace geminid::device {
namespace {

using collectives::DType;
using kernels::BFloat16;

constexpr uint64_t kCount = 40000;  // more than two pieces of the threads
constexpr uint64_t kPlace = kCount * sizeof(float);
constexpr uint64_t kPlaces = 12;

std::vector<float> Values(unsigned seed) {
  std::vector<float> values(kCount);
  uint32_t x = seed * 2654435761u + 1;
  for (float& value : values) {
    x = x * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(x)) / 1e9f;
  }
  return values;
}

std::vector<BFloat16> Rounded(const std::vector<float>& values) {
  std::vector<BFloat16> rounded;
  for (float value : values) rounded.push_back(BFloat16::FromFloat(value));
  return rounded;
}

// Where the per-row and per-column numbers lie, and whether kernels have memory for their scales.
struct StepCase {
  kernels::OptimizerKind kind;
  bool factors_there = false;
  bool scales_there = false;
  bool all_there = false;  // the second segment, too
};

class DeviceOpsConformance : public ::testing::TestWithParam<Implementation> {
 protected:
  void SetUp() override {
    device_ = GetParam().make();
    const uint64_t page = GetParam().page_bytes;
    const uint64_t arena = (kPlaces * kPlace + page - 1) / page * page;
    ASSERT_TRUE(device_->ReserveArena(arena).ok());
    ASSERT_TRUE(device_->ImportSlab(GetParam().make_slab(arena), 0, arena).ok());
    stream_ = *device_->MakeStream("geminid-test");
  }
  void TearDown() override { stream_.reset(); }

  // The n-th place in the arena, enough for kCount elements.
  std::byte* At(uint64_t n) const { return device_->base() + n * kPlace; }
  template <typename T>
  T* As(uint64_t n) const {
    return reinterpret_cast<T*>(At(n));
  }

  template <typename T>
  std::byte* Put(uint64_t n, const std::vector<T>& values) {
    ops().Copy(*stream_, At(n), reinterpret_cast<const std::byte*>(values.data()),
               values.size() * sizeof(T));
    EXPECT_TRUE(Finish().ok());
    return At(n);
  }
  template <typename T>
  std::vector<T> Get(uint64_t n) {
    std::vector<T> values(kCount);
    ops().Copy(*stream_, reinterpret_cast<std::byte*>(values.data()), At(n), kCount * sizeof(T));
    EXPECT_TRUE(Finish().ok());
    return values;
  }

  void ExpectTheHostsStep(const StepCase& c);

  absl::Status Finish() { return ops().Synchronize(*stream_, absl::Seconds(60)); }
  DeviceOps& ops() { return device_->ops(); }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

TEST_P(DeviceOpsConformance, ZeroAndCopy_TouchWhatTheyNameAlone) {
  const std::vector<float> values = Values(1);
  Put(0, values);
  ops().Copy(*stream_, At(1), At(0), kPlace);
  ops().Zero(*stream_, At(0), kPlace - sizeof(float));
  std::vector<float> rest(kCount, 0.0f);
  rest.back() = values.back();
  EXPECT_TRUE(SameBits(Get<float>(0), rest));
  EXPECT_TRUE(SameBits(Get<float>(1), values));
}

TEST_P(DeviceOpsConformance, AssignAndAdd_RoundEachSumOnceWhateverTheTypes) {
  const std::vector<float> first = Values(2);
  const std::vector<float> second = Values(3);
  const Elements wide = {Put(0, first), kCount, DType::kFloat32};
  const Elements narrow = {Put(1, Rounded(second)), kCount, DType::kBFloat16};
  ops().Assign(*stream_, wide, At(2), DType::kBFloat16);
  ops().Add(*stream_, narrow, At(2), DType::kBFloat16);
  ops().Assign(*stream_, narrow, At(3), DType::kFloat32);
  ops().Add(*stream_, wide, At(3), DType::kFloat32);
  std::vector<BFloat16> narrow_sum;
  std::vector<float> wide_sum;
  for (uint64_t i = 0; i < kCount; ++i) {
    const float other = BFloat16::FromFloat(second[i]).ToFloat();
    narrow_sum.push_back(BFloat16::FromFloat(BFloat16::FromFloat(first[i]).ToFloat() + other));
    wide_sum.push_back(other + first[i]);
  }
  EXPECT_TRUE(SameBits(Get<BFloat16>(2), narrow_sum));
  EXPECT_TRUE(SameBits(Get<float>(3), wide_sum));
}

TEST_P(DeviceOpsConformance, AssignFromUnalignedHostMemory_IsExact) {
  const std::vector<float> values = Values(4);
  std::vector<std::byte> shifted(kPlace + 1);
  std::memcpy(&shifted[1], values.data(), kPlace);
  ops().Assign(*stream_, {&shifted[1], kCount, DType::kFloat32}, At(0), DType::kFloat32);
  EXPECT_TRUE(SameBits(Get<float>(0), values));
}

TEST_P(DeviceOpsConformance, Accumulate_GivesTheKernelsBits) {
  std::vector<float> sum = Values(5);
  const std::vector<float> wide = Values(6);
  const std::vector<BFloat16> narrow = Rounded(Values(7));
  Put(0, sum);
  ops().Accumulate(*stream_, {Put(1, wide), kCount, DType::kFloat32}, 0.3f, As<float>(0));
  ops().Accumulate(*stream_, {Put(2, narrow), kCount, DType::kBFloat16}, 0.7f, As<float>(0));
  ASSERT_EQ(kernels::Accumulate(wide.data(), 0.3f, kCount, sum.data()), kernels::Status::kOk);
  ASSERT_EQ(kernels::Accumulate(narrow.data(), 0.7f, kCount, sum.data()), kernels::Status::kOk);
  EXPECT_TRUE(SameBits(Get<float>(0), sum));
}

TEST_P(DeviceOpsConformance, SumSquares_GivesTheKernelsBitsToTheHost) {
  const std::vector<float> wide = Values(8);
  const std::vector<BFloat16> narrow = Rounded(Values(9));
  double sums[2] = {-1, -1};
  ops().SumSquares(*stream_, {Put(0, wide), kCount, DType::kFloat32}, &sums[0]);
  ops().SumSquares(*stream_, {Put(1, narrow), kCount, DType::kBFloat16}, &sums[1]);
  ASSERT_TRUE(Finish().ok());
  kernels::SquareSum expected[2];
  ASSERT_EQ(kernels::AddSquares(wide.data(), kCount, &expected[0]), kernels::Status::kOk);
  ASSERT_EQ(kernels::AddSquares(narrow.data(), kCount, &expected[1]), kernels::Status::kOk);
  EXPECT_EQ(sums[0], expected[0].sum);
  EXPECT_EQ(sums[1], expected[1].sum);
}

TEST_P(DeviceOpsConformance, SplitAndJoin_BringBackTheMaster) {
  const std::vector<float> master = Values(10);
  ops().SplitMaster(*stream_, master.data(), kCount, As<BFloat16>(0), As<int16_t>(1));
  std::vector<float> joined(kCount);
  ops().JoinMaster(*stream_, As<BFloat16>(0), As<int16_t>(1), kCount, joined.data());
  std::vector<float> weights(kCount);
  ops().JoinMaster(*stream_, As<BFloat16>(0), nullptr, kCount, weights.data());
  ops().SplitMaster(*stream_, master.data(), kCount, As<BFloat16>(2), nullptr);
  ASSERT_TRUE(Finish().ok());
  EXPECT_TRUE(SameBits(joined, master));
  for (uint64_t i = 0; i < kCount; ++i) {
    uint32_t bits;
    std::memcpy(&bits, &master[i], sizeof(bits));
    ASSERT_EQ(weights[i], kernels::SplitMasterBits(bits).weight.ToFloat());
  }
  EXPECT_TRUE(SameBits(Get<BFloat16>(2), Get<BFloat16>(0)));
}

// An AdamW segment whose arrays lie on the device or in host memory.
kernels::Segment SegmentAt(float* master, float* first, float* second, const float* gradient) {
  kernels::Segment segment;
  segment.tensor = 0;
  segment.count = kCount;
  segment.arrays.master = master;
  segment.arrays.state[0] = first;
  segment.arrays.state[1] = second;
  segment.gradient = gradient;
  return segment;
}

kernels::ParameterArrays ArraysAt(float* master, float* first, float* second) {
  kernels::ParameterArrays arrays;
  arrays.master = master;
  arrays.state[0] = first;
  arrays.state[1] = second;
  return arrays;
}

TEST_P(DeviceOpsConformance, StateInBFloat16_GivesTheBitsOfTheDenseStepOnAnyNumberOfThreads) {
  for (const kernels::OptimizerKind kind :
       {kernels::OptimizerKind::kAdamW, kernels::OptimizerKind::kLamb}) {
    kernels::OptimizerOptions options;
    options.kind = kind;
    kernels::TensorOptions tensor;
    tensor.shape = {200, kCount / 200};
    tensor.rounding_id = 7;
    const std::vector<float> master = Values(11), gradient = Values(14);
    std::vector<BFloat16> first, second;
    for (const float value : Values(12)) first.push_back(BFloat16::FromFloat(value));
    for (const float value : Values(13)) second.push_back(BFloat16::FromFloat(std::abs(value)));
    const kernels::StepScalars scalars = {.step = 3, .learning_rate = 0.01};
    const auto alone = [](std::span<double>) { return true; };
    const auto small = [](float* weights, BFloat16* m, BFloat16* v) {
      return kernels::ParameterArrays{
          .master = weights, .state_form = kernels::StateForm::kBFloat16, .small_state = {m, v}};
    };

    std::vector<float> expected = master;
    std::vector<BFloat16> expected_first = first, expected_second = second;
    const kernels::ParameterArrays dense =
        small(expected.data(), expected_first.data(), expected_second.data());
    const kernels::Segment whole = {0, 0, kCount, dense.View(), gradient.data()};
    kernels::ShardedStep step(options, {tensor});
    ASSERT_EQ(step.Prepare(scalars, std::span(&whole, 1), nullptr, alone, nullptr),
              kernels::Status::kOk);
    ASSERT_EQ(step.Apply(whole, dense), kernels::Status::kOk);

    Put(0, master);
    Put(1, first);
    Put(2, second);
    Put(3, gradient);
    const kernels::Segment segment = {
        0, 0, kCount, small(As<float>(0), As<BFloat16>(1), As<BFloat16>(2)).View(), As<float>(3)};
    kernels::ShardedStep there(options, {tensor});
    ASSERT_EQ(ops().Prepare(*stream_, &there, scalars, std::span(&segment, 1), nullptr, alone,
                            nullptr, nullptr),
              kernels::Status::kOk);
    for (size_t threads : {1u, 3u}) {
      std::unique_ptr<kernels::ThreadPool> pool;
      ASSERT_EQ(kernels::ThreadPool::Create({.threads = threads}, &pool), kernels::Status::kOk);
      ops().Apply(*stream_, there, segment, small(As<float>(4), As<BFloat16>(5), As<BFloat16>(6)),
                  pool.get());
      ASSERT_TRUE(Finish().ok());
      EXPECT_TRUE(SameBits(Get<float>(4), expected));
      EXPECT_TRUE(SameBits(Get<BFloat16>(5), expected_first));
      EXPECT_TRUE(SameBits(Get<BFloat16>(6), expected_second));
    }
  }
}

TEST_P(DeviceOpsConformance, PrepareAndApply_GiveTheBitsOfTheDenseStepOnAnyNumberOfThreads) {
  for (const kernels::OptimizerKind kind :
       {kernels::OptimizerKind::kAdamW, kernels::OptimizerKind::kLamb}) {
    kernels::OptimizerOptions options;
    options.kind = kind;
    kernels::TensorOptions tensor;
    tensor.shape = {200, kCount / 200};
    std::vector<std::vector<float>> arrays = {Values(11), Values(12), Values(13), Values(14)};
    for (float& value : arrays[2]) value = std::abs(value);
    std::vector<std::vector<float>> expected(3, std::vector<float>(kCount));
    const kernels::StepScalars scalars = {.step = 3, .learning_rate = 0.01};
    const auto alone = [](std::span<double>) { return true; };

    kernels::ShardedStep step(options, {tensor});
    const kernels::Segment dense =
        SegmentAt(arrays[0].data(), arrays[1].data(), arrays[2].data(), arrays[3].data());
    ASSERT_EQ(step.Prepare(scalars, std::span(&dense, 1), nullptr, alone, nullptr),
              kernels::Status::kOk);
    ASSERT_EQ(
        step.Apply(dense, ArraysAt(expected[0].data(), expected[1].data(), expected[2].data())),
        kernels::Status::kOk);

    for (uint64_t n = 0; n < 4; ++n) Put(n, arrays[n]);
    const kernels::Segment segment =
        SegmentAt(As<float>(0), As<float>(1), As<float>(2), As<float>(3));
    kernels::ShardedStep there(options, {tensor});
    ASSERT_EQ(ops().Prepare(*stream_, &there, scalars, std::span(&segment, 1), nullptr, alone,
                            nullptr, nullptr),
              kernels::Status::kOk);
    for (size_t threads : {1u, 3u}) {
      std::unique_ptr<kernels::ThreadPool> pool;
      ASSERT_EQ(kernels::ThreadPool::Create({.threads = threads}, &pool), kernels::Status::kOk);
      ops().Apply(*stream_, there, segment, ArraysAt(As<float>(4), As<float>(5), As<float>(6)),
                  pool.get());
      ASSERT_TRUE(Finish().ok());
      for (uint64_t n = 0; n < 3; ++n) {
        EXPECT_TRUE(SameBits(Get<float>(4 + n), expected[n])) << "array " << n;
      }
    }
  }
}

// A step with state on both sides. The first tensor has three segments, of which the second is in
// host memory. Then follow padding, a frozen tensor and a vector.
class StepOfBothSides {
 public:
  static constexpr uint64_t kFirst = 20000, kPadding = 1000, kFrozen = 10000;
  static constexpr uint64_t kVector = kCount - kFirst - kPadding - kFrozen;

  static kernels::OptimizerOptions Options(kernels::OptimizerKind kind) {
    kernels::OptimizerOptions options;
    options.kind = kind;
    return options;
  }

  explicit StepOfBothSides(kernels::OptimizerKind kind)
      : step_(Options(kind), {{.shape = {100, kFirst / 100}},
                              {.shape = {1, kFrozen}, .frozen = true},
                              {.shape = {1, kVector}}}) {
    for (float& value : arrays_[2]) value = std::abs(value);
  }

  // `place(n)` is the address of array n, on the device or not. The middle segment is in host
  // memory.
  template <class Place>
  std::vector<kernels::Segment> Segments(const Place& place, bool all_there = false) {
    const uint64_t cuts[] = {0, 7000, 9000, kFirst, kFirst + kPadding, kCount - kVector, kCount};
    std::vector<kernels::Segment> segments;
    for (size_t i = 0; i + 1 < std::size(cuts); ++i) {
      const auto at = [&](uint64_t n) {
        return (i == 1 && !all_there ? arrays_[n].data() : place(n)) + cuts[i];
      };
      kernels::Segment segment = SegmentAt(at(0), at(1), at(2), at(3));
      segment.tensor = i == 3 ? kernels::kNoTensor : i > 3 ? static_cast<uint32_t>(i) - 3 : 0;
      segment.offset = i < 3 ? cuts[i] : 0;
      segment.count = cuts[i + 1] - cuts[i];
      segments.push_back(segment);
    }
    return segments;
  }
  std::vector<kernels::Segment> OnHost() {
    return Segments([this](uint64_t n) { return arrays_[n].data(); });
  }

  const kernels::StepScalars scalars = {
      .step = 3, .learning_rate = 0.01, .grad_scale = 0.5, .gradient_norm = 30};
  std::vector<float>& array(uint64_t n) { return arrays_[n]; }
  kernels::ShardedStep& step() { return step_; }

 private:
  std::vector<std::vector<float>> arrays_ = {Values(21), Values(22), Values(23), Values(24)};
  kernels::ShardedStep step_;
};

bool Alone(std::span<double>) { return true; }

void DeviceOpsConformance::ExpectTheHostsStep(const StepCase& c) {
  StepOfBothSides host(c.kind), there(c.kind);
  for (uint64_t n = 0; n < 4; ++n) Put(n, there.array(n));
  std::vector<float> factors(host.step().FactorTotal(), 0.25F);
  std::vector<float> old_factors = factors;
  if (c.factors_there) Put(8, factors);
  float* const factors_there = c.factors_there ? As<float>(8) : factors.data();
  const std::vector<kernels::Segment> dense = host.OnHost();
  const std::vector<kernels::Segment> segments =
      there.Segments([this](uint64_t n) { return As<float>(n); }, c.all_there);
  ASSERT_EQ(ops().Prepare(*stream_, &there.step(), there.scalars, segments, factors_there, Alone,
                          factors_there, c.scales_there ? As<float>(7) : nullptr),
            kernels::Status::kOk);
  if (c.factors_there) {
    std::vector<float> read = Get<float>(8);
    read.resize(factors.size());
    factors = read;
  }
  std::vector<float> expected_factors = std::move(old_factors);
  ASSERT_EQ(host.step().Prepare(host.scalars, dense, expected_factors.data(), Alone,
                                expected_factors.data()),
            kernels::Status::kOk);
  const auto sums = host.step().TensorSums();
  EXPECT_TRUE(std::ranges::equal(there.step().TensorSums(), sums));
  EXPECT_EQ(sums[0] + sums[1] > 0, c.kind != kernels::OptimizerKind::kAdamW);
  EXPECT_TRUE(SameBits(factors, expected_factors));
  std::vector<std::vector<float>> expected(3, std::vector<float>(kCount));
  for (size_t i = 0; i < segments.size(); ++i) {
    const uint64_t begin = static_cast<uint64_t>(dense[i].arrays.master - host.array(0).data());
    const auto at = [&](uint64_t n) { return expected[n].data() + begin; };
    ASSERT_EQ(host.step().Apply(dense[i], ArraysAt(at(0), at(1), at(2))), kernels::Status::kOk);
    ops().Apply(*stream_, there.step(), segments[i],
                ArraysAt(As<float>(4) + begin, As<float>(5) + begin, As<float>(6) + begin),
                nullptr);
  }
  ASSERT_TRUE(Finish().ok());
  const size_t states = static_cast<size_t>(kernels::StateArrays(StepOfBothSides::Options(c.kind)));
  for (uint64_t n = 0; n < 1 + states; ++n) {
    EXPECT_TRUE(SameBits(Get<float>(4 + n), expected[n])) << "array " << n;
  }
}

TEST_P(DeviceOpsConformance, StepOfATensorOnBothSides_HasTheHostsNormsAndBits) {
  for (const kernels::OptimizerKind kind :
       {kernels::OptimizerKind::kAdamW, kernels::OptimizerKind::kLamb,
        kernels::OptimizerKind::kLars, kernels::OptimizerKind::kAdafactor,
        kernels::OptimizerKind::kCame}) {
    SCOPED_TRACE(kernels::OptimizerName(kind));
    const bool factored = StepOfBothSides(kind).step().FactorTotal() > 0;
    ExpectTheHostsStep({kind});
    for (unsigned n = 1; n < 8 && factored; ++n) {
      SCOPED_TRACE(n);
      ExpectTheHostsStep({kind, (n & 1) != 0, (n & 2) != 0, (n & 4) != 0});
    }
  }
}

TEST_P(DeviceOpsConformance, RefusedSegment_IsSaidByPrepareAndHarmsNothing) {
  StepOfBothSides there(kernels::OptimizerKind::kLamb);
  std::vector<kernels::Segment> segments =
      there.Segments([this](uint64_t n) { return As<float>(n); });
  segments[2].arrays.state[1] = nullptr;
  double reduced = 0;
  const auto reduce = [&](std::span<double> sums) {
    reduced = sums[0];
    return true;
  };
  EXPECT_EQ(ops().Prepare(*stream_, &there.step(), there.scalars, segments, nullptr, reduce,
                          nullptr, nullptr),
            kernels::Status::kNullPointer);
  EXPECT_TRUE(std::isnan(reduced));
  EXPECT_TRUE(Finish().ok());
}

TEST(CudaOps, StepWithinTheArena_BringsNothingDown) {
  if (CudaNode() == nullptr) GTEST_SKIP() << "a real driver counts no bytes";
  const Implementation cuda = OnCuda();
  const std::unique_ptr<Device> device = cuda.make();
  constexpr uint64_t kArena = uint64_t{4} << 20;
  ASSERT_TRUE(device->ReserveArena(kArena).ok());
  ASSERT_TRUE(device->ImportSlab(cuda.make_slab(kArena), 0, kArena).ok());
  const std::unique_ptr<Stream> stream = *device->MakeStream("geminid-test");
  DeviceOps& ops = device->ops();
  const auto at = [&](uint64_t n) { return reinterpret_cast<float*>(device->base() + n * kPlace); };
  for (const kernels::OptimizerKind kind :
       {kernels::OptimizerKind::kAdamW, kernels::OptimizerKind::kLamb,
        kernels::OptimizerKind::kLars, kernels::OptimizerKind::kAdafactor,
        kernels::OptimizerKind::kCame}) {
    StepOfBothSides there(kind);
    for (uint64_t n = 0; n < 4; ++n) {
      ops.Copy(*stream, reinterpret_cast<std::byte*>(at(n)),
               reinterpret_cast<const std::byte*>(there.array(n).data()), kPlace);
    }
    ops.Zero(*stream, reinterpret_cast<std::byte*>(at(8)), kPlace);
    std::vector<kernels::Segment> segments = there.Segments(at);
    segments.erase(segments.begin() + 1);  // the segment in host memory
    const uint64_t before = CudaNode()->bytes_to_host(0);
    ASSERT_EQ(
        ops.Prepare(*stream, &there.step(), there.scalars, segments, at(8), Alone, at(9), at(7)),
        kernels::Status::kOk);
    for (const kernels::Segment& segment : segments) {
      const auto begin = segment.arrays.master - at(0);
      ops.Apply(*stream, there.step(), segment,
                ArraysAt(at(4) + begin, at(5) + begin, at(6) + begin), nullptr);
    }
    ASSERT_TRUE(ops.Synchronize(*stream, absl::Seconds(60)).ok());
    EXPECT_EQ(CudaNode()->bytes_to_host(0), before) << kernels::OptimizerName(kind);
  }
}

TEST_P(DeviceOpsConformance, OperationsOfAStream_WaitForItsEvents) {
  Put(0, Values(15));
  std::atomic<bool> release = false;
  device_->compute_stream().Enqueue([&] {
    while (!release.load()) std::this_thread::yield();
  });
  stream_->WaitFor(device_->compute_stream().Record());
  double sum = -1;
  ops().SumSquares(*stream_, {At(0), kCount, DType::kFloat32}, &sum);
  EXPECT_TRUE(absl::IsDeadlineExceeded(ops().Synchronize(*stream_, absl::Milliseconds(1))));
  release.store(true);
  ASSERT_TRUE(Finish().ok());
  EXPECT_GT(sum, 0);
}

TEST_P(DeviceOpsConformance, FailedOperation_IsSaidBySynchronizeEverAfter) {
  ops().Accumulate(*stream_, {At(0), kCount, DType::kFloat32},
                   std::numeric_limits<float>::infinity(), As<float>(1));
  EXPECT_TRUE(absl::IsInternal(Finish()));
  ops().Zero(*stream_, At(0), kPlace);
  EXPECT_TRUE(absl::IsInternal(Finish()));
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceOpsConformance,
                         ::testing::Values(OnHost("Host", {}),
                                           OnHost("StrictHost", {.strict = true}), OnCuda()),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace geminid::device
