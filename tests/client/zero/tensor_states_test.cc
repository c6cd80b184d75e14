#include "client/zero/tensor_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace geminid::zero {
namespace {

using shm::ChunkState;
using ::testing::HasSubstr;

TEST(TensorStates, TrainingStep_PassesThroughEveryPredicate) {
  TensorStates states(2);
  for (size_t tensor : {0, 1}) ASSERT_TRUE(states.Move(tensor, ChunkState::kHold, "w").ok());
  for (size_t tensor : {0, 1}) ASSERT_TRUE(states.Move(tensor, ChunkState::kCompute, "w").ok());
  for (size_t tensor : {0, 1}) {
    ASSERT_TRUE(states.Move(tensor, ChunkState::kHoldAfterBackward, "w").ok());
  }
  ASSERT_TRUE(states.Move(0, ChunkState::kReadyForReduce, "w").ok());
  EXPECT_FALSE(states.CanReduce());
  ASSERT_TRUE(states.Move(1, ChunkState::kReadyForReduce, "w").ok());
  EXPECT_TRUE(states.CanReduce());
  ASSERT_TRUE(states.Move(0, ChunkState::kHold, "w").ok());
  EXPECT_FALSE(states.CanReduce());
  EXPECT_EQ(states.Count(ChunkState::kReadyForReduce), 1u);
}

TEST(TensorStates, IllegalStep_NamesParameterAndStatesAndChangesNothing) {
  TensorStates states(1);
  const absl::Status status = states.Move(0, ChunkState::kReadyForReduce, "block.0.weight");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("block.0.weight"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("FREE to READY_FOR_REDUCE"));
  EXPECT_EQ(states.state(0), ChunkState::kFree);
}

}  // namespace
}  // namespace geminid::zero
