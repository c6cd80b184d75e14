#include "proto/shm/chunk_state.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

namespace geminid::shm {
namespace {

TEST(ChunkState, AllPairs_ExactlyTheNineOfGeminiAreLegal) {
  const std::set<std::pair<std::string, std::string>> legal = {
      {"FREE", "HOLD"},
      {"FREE", "COMPUTE"},
      {"HOLD", "FREE"},
      {"HOLD", "COMPUTE"},
      {"COMPUTE", "HOLD"},
      {"COMPUTE", "HOLD_AFTER_BACKWARD"},
      {"HOLD_AFTER_BACKWARD", "COMPUTE"},
      {"HOLD_AFTER_BACKWARD", "READY_FOR_REDUCE"},
      {"READY_FOR_REDUCE", "HOLD"},
  };
  ASSERT_EQ(legal.size(), 9u);
  for (int from = 0; from < kChunkStates; ++from) {
    for (int to = 0; to < kChunkStates; ++to) {
      const ChunkState a = static_cast<ChunkState>(from);
      const ChunkState b = static_cast<ChunkState>(to);
      EXPECT_EQ(IsLegalTransition(a, b), legal.count({Name(a), Name(b)}) == 1)
          << Name(a) << " to " << Name(b);
    }
  }
}

TEST(ChunkState, OnlyTheFive_AreValid) {
  for (int state = 0; state < 256; ++state) {
    EXPECT_EQ(IsValid(static_cast<ChunkState>(state)), state < 5) << state;
  }
}

}  // namespace
}  // namespace geminid::shm
