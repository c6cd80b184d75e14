#include "collectives/shm/streaming_copy.h"

#include <gtest/gtest.h>

#include <vector>

#include "absl/time/time.h"
#include "tests/collectives/world.h"

namespace geminid::collectives {
namespace {

TEST(StreamingCopy, OfAnySizeAnywhere_CopiesThatAndNothingElse) {
  constexpr std::byte kUntouched{0xee};
  constexpr size_t kMost = 300;
  std::vector<std::byte> from(kMost + 64);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  for (size_t to_offset = 0; to_offset < 64; ++to_offset) {
    for (const size_t from_offset : {0, 1, 8, 33}) {
      for (const size_t bytes : {0, 1, 15, 63, 64, 65, 127, 128, 200, 300}) {
        std::vector<std::byte> to(kMost + 128, kUntouched);
        StreamingCopy(to.data() + to_offset, from.data() + from_offset, bytes);
        for (size_t i = 0; i < to.size(); ++i) {
          const bool copied = i >= to_offset && i < to_offset + bytes;
          ASSERT_EQ(to[i], copied ? from[from_offset + i - to_offset] : kUntouched)
              << to_offset << " " << from_offset << " " << bytes << " " << i;
        }
      }
    }
  }
}

// Large enough for streaming copies, with a size that puts slices at odd addresses.
TEST(ShmAllGather, OfBuffersLargerThanCaches_OrdersSlicesByRank) {
  constexpr int kRanks = 3;
  constexpr size_t kSlice = kStreamedBytes / kRanks + 5;
  const auto element = [](size_t rank, size_t i) { return static_cast<uint8_t>(i * 31 + rank); };
  Communicators group = ShmBackend().connect(kRanks, absl::Seconds(60));
  ForEachRank(group, [&](Communicator& c) {
    std::vector<uint8_t> mine(kSlice), all(kRanks * kSlice);
    for (size_t i = 0; i < kSlice; ++i) mine[i] = element(static_cast<size_t>(c.Rank()), i);
    ASSERT_EQ(c.AllGather(mine, all), absl::OkStatus());
    for (size_t rank = 0; rank < kRanks; ++rank) {
      for (size_t i = 0; i < kSlice; ++i) ASSERT_EQ(all[rank * kSlice + i], element(rank, i));
    }
  });
}

}  // namespace
}  // namespace geminid::collectives
