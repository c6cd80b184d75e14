// Exchanges between GPUs of a driver without a GPU. The values are whole numbers, so each sum is
// exact. Ranks are threads.
#include "training/nn/gpu_axis_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "client/device/cuda/cuda_context.h"
#include "collectives/nccl/nccl_communicator.h"
#include "gpu/driver_api.h"
#include "tests/collectives/world.h"
#include "tests/gpu/double/node.h"
#include "tests/gpu/double/node_file.h"
#include "tests/training/nn/parallel/counting_memory.h"

namespace geminid::trainer {
namespace {

using collectives::Buffer;
using collectives::DType;
using collectives::ReduceOp;

constexpr int kRanks = 3;
constexpr size_t kCount = 10;      // elements of a rank's slice
constexpr size_t kHostBytes = 64;  // so that pieces have 4 elements at most, and the last one 2

// A process has one driver, so all tests share one node.
void MakeNode() {
  static auto* const node = new gpu_double::Node({.devices = kRanks,
                                                  .libcuda = GEMINID_CUDA_DOUBLE,
                                                  .libnvml = GEMINID_NVML_DOUBLE,
                                                  .kernels = GEMINID_DOUBLE_KERNELS,
                                                  .libnccl = GEMINID_NCCL_DOUBLE});
  (void)node;
}

// Memory of a rank's GPU. A processor that touches it kills its process.
class DeviceFloats {
 public:
  DeviceFloats(GpuQueue& queue, const std::vector<float>& values)
      : queue_(queue), count_(values.size()) {
    EXPECT_EQ(Api().mem_alloc(&address_, bytes()), CUDA_SUCCESS);
    EXPECT_TRUE(queue.Upload(values.data(), bytes(), data()).ok());
  }
  ~DeviceFloats() { EXPECT_EQ(Api().mem_free(address_), CUDA_SUCCESS); }
  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const DeviceFloats&) = delete;

  Buffer all() const { return {data(), count_, DType::kFloat32}; }
  std::vector<float> Read() const {
    std::vector<float> values(count_);
    EXPECT_TRUE(queue_.Download(data(), bytes(), values.data()).ok());
    return values;
  }

 private:
  static const gpu::DriverApi& Api() {
    std::string error;
    return *gpu::ProcessDriver(&error);
  }
  float* data() const { return reinterpret_cast<float*>(address_); }
  size_t bytes() const { return count_ * sizeof(float); }

  GpuQueue& queue_;
  const size_t count_;
  CUdeviceptr address_ = 0;
};

// `slices` slices; each element differs from all others, also from those of other ranks.
std::vector<float> Values(int rank, size_t slices) {
  std::vector<float> values(slices * kCount);
  std::iota(values.begin(), values.end(), 1.0F + 1000.0F * static_cast<float>(rank));
  return values;
}
std::vector<float> SumOfAll(size_t slices) {
  std::vector<float> sum(slices * kCount);
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::vector<float> values = Values(rank, slices);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
  return sum;
}

enum class Way { kHostMemory, kNccl };

class GpuAxisRanksBy : public testing::TestWithParam<Way> {
 protected:
  using Body = std::function<void(int rank, GpuAxisRanks& ranks, GpuQueue& queue)>;

  // Calls `body` on each rank, which has a GPU of its own.
  void OnRanks(const Body& body) {
    MakeNode();
    auto world = collectives::LocalBackend().connect(kRanks, absl::Seconds(60));
    collectives::ForEachRank(world, [&](collectives::Communicator& ranks) {
      auto queue = GpuQueue::Create(gpu_double::UuidOf(ranks.Rank()));
      ASSERT_TRUE(queue.ok()) << queue.status();
      auto context = device::CudaContext::Create(gpu_double::UuidOf(ranks.Rank()));
      ASSERT_TRUE(context.ok()) << context.status();
      std::unique_ptr<collectives::Communicator> devices;
      if (GetParam() == Way::kNccl) {
        auto connected = collectives::ConnectNccl({.driver = &(*context)->api(),
                                                   .device = (*context)->device(),
                                                   .context = (*context)->handle()},
                                                  *ranks.Duplicate("nccl"));
        ASSERT_TRUE(connected.ok()) << connected.status();
        devices = *std::move(connected);
      }
      collectives::CountingMemory memory(/*refused=*/0);
      GpuAxisRanks between(ranks, std::move(devices), **queue, memory, kHostBytes);
      body(ranks.Rank(), between, **queue);
      EXPECT_LE(memory.TakePeakBytes(), GetParam() == Way::kNccl ? 0 : kHostBytes);
      EXPECT_EQ(memory.in_use_bytes(), 0u);
    });
  }
};

TEST_P(GpuAxisRanksBy, Gather_HasTheSlicesOfAllRanksInOrder) {
  OnRanks([](int rank, GpuAxisRanks& ranks, GpuQueue& queue) {
    const DeviceFloats mine(queue, Values(rank, 1));
    const DeviceFloats all(queue, std::vector<float>(kRanks * kCount));
    ASSERT_EQ(ranks.AllGather(mine.all(), all.all()), absl::OkStatus());
    std::vector<float> want;
    for (int from = 0; from < kRanks; ++from) {
      const std::vector<float> values = Values(from, 1);
      want.insert(want.end(), values.begin(), values.end());
    }
    EXPECT_EQ(all.Read(), want);
  });
}

TEST_P(GpuAxisRanksBy, Sums_AreThoseOfAllRanksWhereTheyBelong) {
  OnRanks([](int rank, GpuAxisRanks& ranks, GpuQueue& queue) {
    const DeviceFloats parts(queue, Values(rank, kRanks));
    const DeviceFloats slice(queue, std::vector<float>(kCount));
    ASSERT_EQ(ranks.ReduceScatter(parts.all(), slice.all()), absl::OkStatus());
    const std::vector<float> sum = SumOfAll(kRanks);
    const auto first = sum.begin() + rank * static_cast<int>(kCount);
    EXPECT_EQ(slice.Read(), std::vector<float>(first, first + kCount));

    const std::vector<float> untouched(kCount, -1.0F);
    const DeviceFloats mine(queue, Values(rank, 1)), at_root(queue, untouched);
    ASSERT_EQ(ranks.Reduce(mine.all(), at_root.all(), /*root=*/1), absl::OkStatus());
    EXPECT_EQ(at_root.Read(), rank == 1 ? SumOfAll(1) : untouched);

    ASSERT_EQ(ranks.AllReduce(mine.all(), mine.all(), ReduceOp::kMax), absl::OkStatus());
    EXPECT_EQ(mine.Read(), Values(kRanks - 1, 1));
    ASSERT_EQ(ranks.AllReduce(parts.all(), parts.all(), ReduceOp::kSum), absl::OkStatus());
    EXPECT_EQ(parts.Read(), sum);
  });
}

TEST_P(GpuAxisRanksBy, Values_GoToAllRanksOrToOne) {
  OnRanks([](int rank, GpuAxisRanks& ranks, GpuQueue& queue) {
    const DeviceFloats own(queue, Values(rank, 1)), out(queue, std::vector<float>(kCount));
    ASSERT_EQ(ranks.Broadcast(own.all(), out.all(), /*root=*/2), absl::OkStatus());
    EXPECT_EQ(out.Read(), Values(2, 1));
    EXPECT_EQ(own.Read(), Values(rank, 1));
    // Ranks 0 and 2 exchange; rank 1 is across from itself.
    ASSERT_EQ(ranks.Exchange(own.all(), out.all(), kRanks - 1 - rank), absl::OkStatus());
    EXPECT_EQ(out.Read(), Values(kRanks - 1 - rank, 1));
  });
}

TEST_P(GpuAxisRanksBy, Abort_EndsTheWaitsOfTheOthers) {
  OnRanks([](int rank, GpuAxisRanks& ranks, GpuQueue& queue) {
    const DeviceFloats mine(queue, Values(rank, 1));
    if (rank == 0) return ranks.Abort("no memory here");
    const absl::Status status = ranks.AllReduce(mine.all(), mine.all(), ReduceOp::kSum);
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("no memory here"));
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, GpuAxisRanksBy, testing::Values(Way::kHostMemory, Way::kNccl),
                         [](const auto& way) {
                           return way.param == Way::kNccl ? "Nccl" : "HostMemory";
                         });

// One rank on a row or a column of a grid.
TEST(GpuAxisRanks, OfOneRank_CopiesOnTheGpu) {
  MakeNode();
  auto queue = GpuQueue::Create("");
  ASSERT_TRUE(queue.ok()) << queue.status();
  auto alone = collectives::MakeSelfCommunicator();
  collectives::CountingMemory memory(/*refused=*/0);
  GpuAxisRanks ranks(*alone, /*devices=*/nullptr, **queue, memory);
  const DeviceFloats from(**queue, Values(0, 1));
  for (const auto& call : std::vector<std::function<absl::Status(Buffer)>>{
           [&](Buffer to) { return ranks.AllGather(from.all(), to); },
           [&](Buffer to) { return ranks.ReduceScatter(from.all(), to); },
           [&](Buffer to) { return ranks.Reduce(from.all(), to, 0); },
           [&](Buffer to) { return ranks.AllReduce(from.all(), to, ReduceOp::kSum); },
           [&](Buffer to) { return ranks.Broadcast(from.all(), to, 0); },
           [&](Buffer to) { return ranks.Exchange(from.all(), to, 0); }}) {
    const DeviceFloats to(**queue, std::vector<float>(kCount));
    ASSERT_EQ(call(to.all()), absl::OkStatus());
    EXPECT_EQ(to.Read(), Values(0, 1));
  }
  EXPECT_EQ(memory.requests(), 0);
}

}  // namespace
}  // namespace geminid::trainer
