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

// Calls work(first, count) for the blocks of the range, in order; with several threads some at the
// same time. After an error no more blocks begin. Returns the error of the first block that has
// one, whatever the number of threads. `on_progress`, which may be null, hears how much is done
// from one thread at a time. Fewer threads do where the system gives no more.
absl::Status InBlocks(const BlockRange& range,
                      const std::function<absl::Status(uint64_t first, uint64_t count)>& work,
                      const std::function<void(uint64_t done, uint64_t of)>& on_progress);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_DATA_IN_BLOCKS_H_
