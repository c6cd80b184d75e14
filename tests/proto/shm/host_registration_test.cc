#include "proto/shm/host_registration.h"

#include <gtest/gtest.h>

namespace geminid::shm {
namespace {

TEST(HostRegistration, Counts_AreReadAsTheyWereStored) {
  ClientCounters counters = {};
  EXPECT_EQ(LoadHostRegistration(counters).bytes, 0u) << "of a client that knows nothing of it";
  StoreHostRegistration({.bytes = 60,
                         .registered_bytes = 30,
                         .refused_bytes = 20,
                         .pieces = 6,
                         .registered_pieces = 3,
                         .refused_pieces = 2},
                        &counters);
  const HostRegistration read = LoadHostRegistration(counters);
  EXPECT_EQ(read.bytes, 60u);
  EXPECT_EQ(read.registered_bytes, 30u);
  EXPECT_EQ(read.refused_bytes, 20u);
  EXPECT_EQ(read.pieces, 6u);
  EXPECT_EQ(read.registered_pieces, 3u);
  EXPECT_EQ(read.refused_pieces, 2u);
}

TEST(HostRegistration, CountsOfALiar_AddUpAllTheSame) {
  constexpr uint64_t kMost = ~uint64_t{0};
  ClientCounters counters = {};
  StoreHostRegistration({kMost, kMost, kMost, 5, 4, kMost}, &counters);
  const HostRegistration read = LoadHostRegistration(counters);
  EXPECT_EQ(read.bytes, kMostRegistered);
  EXPECT_EQ(read.registered_bytes, kMostRegistered);
  EXPECT_EQ(read.refused_bytes, 0u);
  EXPECT_EQ(read.pieces, 5u);
  EXPECT_EQ(read.registered_pieces, 4u);
  EXPECT_EQ(read.refused_pieces, 1u);
}

}  // namespace
}  // namespace geminid::shm
