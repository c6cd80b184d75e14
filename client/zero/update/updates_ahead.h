// Updates of granules whose state is fetched ahead from where it lies, and brought back: streamed
// through the device, or from and to a disk.
#ifndef GEMINID_CLIENT_ZERO_UPDATE_UPDATES_AHEAD_H_
#define GEMINID_CLIENT_ZERO_UPDATE_UPDATES_AHEAD_H_

#include <cstdint>

#include "absl/status/status.h"
#include "client/zero/state/places_ahead.h"
#include "kernels/runtime/parallel/thread_pool.h"

namespace geminid::zero {

// By one thread at a time.
class UpdatesAhead {
 public:
  virtual ~UpdatesAhead() = default;

  // The granule is updated after those added before. Its state begins to come when there is a place
  // for it: nothing may change it any more, nor its gradient.
  virtual void Add(uint32_t granule) = 0;
  // Waits until the version `epoch` of the first granule is complete in its spare. It must be
  // flipped before the next call.
  virtual absl::Status FinishFirst(uint64_t epoch, kernels::ThreadPool* pool) = 0;
  // Waits until nothing is being updated, and with that until the pool is free.
  virtual absl::Status WaitUpdates() = 0;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_UPDATE_UPDATES_AHEAD_H_
