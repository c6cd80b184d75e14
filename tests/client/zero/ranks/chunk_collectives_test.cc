#include "client/zero/ranks/chunk_collectives.h"

#include <gmock/gmock.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/src/session_internal.h"
#include "kernels/runtime/common/bfloat16.h"
#include "tests/client/zero/rooms_fixture.h"

namespace geminid::zero {
namespace {

using kernels::BFloat16;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr size_t kElements = 64;

// Two ranks, each with a chunk in host memory.
class ChunkCollectivesTest : public RoomsTest {
 protected:
  using Call = std::function<absl::Status(int rank, ChunkCollectives&, ChunkCollectives::Chunk)>;

  // `values` are this rank's values before and after the call.
  std::vector<absl::Status> OnBothRanks(const Call& call) {
    const auto ranks = collectives::MakeLocalCommunicators(2, absl::Seconds(30));
    std::vector<absl::Status> statuses(2);
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        auto compute = Compute::Create(DeviceOf(*session_), "test", absl::Seconds(30));
        ASSERT_TRUE(compute.ok()) << compute.status();
        ChunkCollectives collectives(*setup_, (*compute)->on_device(), ranks[rank].get(), nullptr,
                                     nullptr);
        statuses[rank] = call(static_cast<int>(rank), collectives,
                              {.label = "chunk 0",
                               .data = reinterpret_cast<std::byte*>(values_[rank].data()),
                               .shape = &shape_});
      });
    }
    for (std::thread& thread : threads) thread.join();
    return statuses;
  }

  std::vector<float> Values(size_t rank) const {
    std::vector<float> values;
    for (const BFloat16 value : values_[rank]) values.push_back(value.ToFloat());
    return values;
  }

  static ChunkShape Shape() {
    ChunkShape shape;
    shape.elements = kElements;
    shape.granule_elements = kElements / 2;
    shape.granules = 1;
    return shape;
  }

  const ChunkShape shape_ = Shape();
  std::vector<std::vector<BFloat16>> values_{2, std::vector<BFloat16>(kElements)};
};

TEST_F(ChunkCollectivesTest, Average_PutsTheMeanIntoEachRanksOwnSlice) {
  values_[0].assign(kElements, BFloat16::FromFloat(1));
  values_[1].assign(kElements, BFloat16::FromFloat(3));
  for (const absl::Status& status : OnBothRanks(
           [](int, ChunkCollectives& all, const auto& chunk) { return all.Average(chunk); })) {
    ASSERT_TRUE(status.ok()) << status;
  }
  for (size_t rank = 0; rank < 2; ++rank) {
    const std::vector<float> values = Values(rank);
    const auto own = values.begin() + static_cast<std::ptrdiff_t>(rank * kElements / 2);
    EXPECT_THAT(std::vector<float>(own, own + kElements / 2), Each(2.0F));
  }
}

TEST_F(ChunkCollectivesTest, RanksAtDifferentChunks_AreRefusedBeforeAnythingIsExchanged) {
  const std::vector<absl::Status> statuses =
      OnBothRanks([](int rank, ChunkCollectives& all, ChunkCollectives::Chunk chunk) {
        if (rank == 1) chunk.label = "chunk 1";
        return all.AllGather(chunk);
      });
  for (const absl::Status& status : statuses) EXPECT_FALSE(status.ok());
  const bool named = absl::IsInvalidArgument(statuses[0]) || absl::IsInvalidArgument(statuses[1]);
  EXPECT_TRUE(named) << statuses[0] << ", " << statuses[1];
  EXPECT_THAT(std::string(statuses[absl::IsInvalidArgument(statuses[0]) ? 0 : 1].message()),
              HasSubstr("chunk 1"));
  EXPECT_THAT(Values(0), Each(0.0F));
}

}  // namespace
}  // namespace geminid::zero
