#include "proto/shm/disk_use.h"

#include <gtest/gtest.h>

#include "proto/shm/host_registration.h"

namespace geminid::shm {
namespace {

TEST(DiskUse, Numbers_AreReadAsTheyWereStoredBesideThoseOfHostMemory) {
  ClientCounters counters = {};
  EXPECT_EQ(LoadDiskUse(counters).file_bytes, 0u) << "of a client that knows nothing of it";
  StoreHostRegistration({60, 30, 20, 6, 3, 2}, &counters);
  StoreDiskUse({.file_bytes = 7, .read_bytes = 8, .written_bytes = 9}, &counters);
  const DiskUse read = LoadDiskUse(counters);
  EXPECT_EQ(read.file_bytes, 7u);
  EXPECT_EQ(read.read_bytes, 8u);
  EXPECT_EQ(read.written_bytes, 9u);
  EXPECT_EQ(LoadHostRegistration(counters).refused_pieces, 2u);
}

TEST(DiskUse, FilesOfALiar_AreNoLargerThanAnyDisk) {
  ClientCounters counters = {};
  StoreDiskUse({.file_bytes = ~uint64_t{0}}, &counters);
  EXPECT_EQ(LoadDiskUse(counters).file_bytes, kMostFileBytes);
}

}  // namespace
}  // namespace geminid::shm
