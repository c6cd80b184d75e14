// Works through a long range block by block, on several threads.
#ifndef GEMINID_TRAINING_DATA_IN_BLOCKS_H_
#define GEMINID_TRAINING_DATA_IN_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"

namespace geminid::trainer {

struct BlockRange {
  uint64_t first = 0;
  uint64_t end = 0;
  size_t threads = 1;
  uint64_t block = uint64_t{1} << 22;
};

// Calls work(first, count) for the blocks of the range. Blocks start in order, and several threads
// run some at the same time. After an error no more blocks start. Returns the error of the first
// block that failed, for any number of threads. `on_progress` may be null; one thread at a time
// calls it. If the system refuses threads, fewer threads do the work.
absl::Status InBlocks(const BlockRange& range,
                      const std::function<absl::Status(uint64_t first, uint64_t count)>& work,
                      const std::function<void(uint64_t done, uint64_t of)>& on_progress);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_DATA_IN_BLOCKS_H_
