#include "proto/shm/batch_numbers.h"

#include <gtest/gtest.h>

#include <limits>

#include "proto/shm/disk_use.h"

namespace geminid::shm {
namespace {

TEST(BatchNumbers, Numbers_AreReadAsTheyWereStoredBesideThoseOfDisks) {
  ClientCounters counters = {};
  EXPECT_EQ(LoadBatchNumbers(counters).per_step, 0) << "of a client that knows nothing of it";
  StoreDiskUse({.file_bytes = 7, .read_bytes = 8, .written_bytes = 9}, &counters);
  StoreBatchNumbers({.per_step = 8, .noise_scale = 41.5, .advised_per_step = 24}, &counters);
  const BatchNumbers read = LoadBatchNumbers(counters);
  EXPECT_EQ(read.per_step, 8);
  EXPECT_EQ(read.noise_scale, 41.5);
  EXPECT_EQ(read.advised_per_step, 24);
  EXPECT_EQ(LoadDiskUse(counters).written_bytes, 9u);
}

TEST(BatchNumbers, WordsThatAreNoNumbersOfSequences_ReadAsUnknown) {
  ClientCounters counters = {};
  for (const double word : {std::numeric_limits<double>::quiet_NaN(), -1.0, 1e16,
                            std::numeric_limits<double>::infinity()}) {
    StoreBatchNumbers({.per_step = word, .noise_scale = 3, .advised_per_step = word}, &counters);
    EXPECT_EQ(LoadBatchNumbers(counters).per_step, 0) << word;
    EXPECT_EQ(LoadBatchNumbers(counters).noise_scale, 3);
  }
}

}  // namespace
}  // namespace geminid::shm
