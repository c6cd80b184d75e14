// The same inputs give the same bits on every backend.
#include <gtest/gtest.h>

#include <map>

#include "tests/collectives/elements.h"
#include "tests/collectives/tcp_backend.h"
#include "tests/collectives/world.h"

namespace geminid::collectives {
namespace {

constexpr int kRanks = 3;
constexpr size_t kCount = 30'000;

// All results of rank 0, as one sequence of bytes.
std::vector<std::byte> ReduceAllTypes(const Backend& backend) {
  std::vector<std::byte> results;
  Communicators group = backend.connect(kRanks, absl::Seconds(60));
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    ForEachRank(group, [&](Communicator& c) {
      const auto in = RandomElements(dtype, kCount, static_cast<uint64_t>(c.Rank()));
      std::vector<std::byte> all(in.size()), slice(in.size() / kRanks);
      EXPECT_EQ(c.AllReduce(ConstBuffer(in.data(), kCount, dtype),
                            Buffer(all.data(), kCount, dtype), ReduceOp::kSum, {.scale = 1.0 / 3}),
                absl::OkStatus());
      EXPECT_EQ(c.ReduceScatter(ConstBuffer(in.data(), kCount, dtype),
                                Buffer(slice.data(), kCount / kRanks, dtype)),
                absl::OkStatus());
      if (c.Rank() != 0) return;
      results.insert(results.end(), all.begin(), all.end());
      results.insert(results.end(), slice.begin(), slice.end());
    });
  }
  return results;
}

TEST(Equality, AllBackends_GiveTheSameBits) {
  const auto expected = ReduceAllTypes(LocalBackend());
  EXPECT_TRUE(ReduceAllTypes(ShmBackend()) == expected);
  EXPECT_TRUE(ReduceAllTypes(ShmSmallPiecesBackend()) == expected);
  EXPECT_TRUE(ReduceAllTypes(TcpBackend()) == expected);
}

}  // namespace
}  // namespace geminid::collectives
