#include "daemon/core/chunks/chunk_states.h"

#include <set>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace geminid::core {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr ChunkState kFree = ChunkState::kFree;
constexpr ChunkState kHold = ChunkState::kHold;
constexpr ChunkState kCompute = ChunkState::kCompute;
constexpr ChunkState kAfterBackward = ChunkState::kHoldAfterBackward;
constexpr ChunkState kReady = ChunkState::kReadyForReduce;

TEST(ChunkStates, AllPairs_NineAreLegal) {
  const std::set<std::pair<ChunkState, ChunkState>> legal = {{kFree, kHold},
                                                             {kFree, kCompute},
                                                             {kHold, kFree},
                                                             {kHold, kCompute},
                                                             {kCompute, kHold},
                                                             {kCompute, kAfterBackward},
                                                             {kAfterBackward, kCompute},
                                                             {kAfterBackward, kReady},
                                                             {kReady, kHold}};
  ASSERT_EQ(legal.size(), 9u);
  for (int from = 0; from < shm::kChunkStates; ++from) {
    for (int to = 0; to < shm::kChunkStates; ++to) {
      const auto a = static_cast<ChunkState>(from);
      const auto b = static_cast<ChunkState>(to);
      const absl::Status status = CheckTransition("w", a, b);
      EXPECT_EQ(status.ok(), legal.count({a, b}) == 1) << shm::Name(a) << " to " << shm::Name(b);
      if (!status.ok()) {
        EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
      }
    }
  }
}

TEST(ChunkStates, IllegalTransition_NamesChunkAndStates) {
  const std::string text(CheckTransition("layer.7.weight", kHold, kReady).message());
  EXPECT_THAT(text, HasSubstr("layer.7.weight"));
  EXPECT_THAT(text, HasSubstr("HOLD and may not become READY_FOR_REDUCE"));
  EXPECT_THAT(text, EndsWith("it may become FREE or COMPUTE"));
  EXPECT_THAT(std::string(CheckTransition("w", kReady, kFree).message()),
              EndsWith("it may become HOLD"));
}

TEST(ChunkStates, UnknownState_IsInvalid) {
  for (const int value : {5, 17, 255}) {
    EXPECT_EQ(CheckTransition("w", kHold, static_cast<ChunkState>(value)).code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace geminid::core
