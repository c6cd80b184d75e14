// Updates of granules whose state is fetched ahead of the update and written back after it:
// streamed through the device, or from and to a disk.
#ifndef GEMINID_CLIENT_ZERO_UPDATE_UPDATES_AHEAD_H_
#define GEMINID_CLIENT_ZERO_UPDATE_UPDATES_AHEAD_H_

#include <cstdint>

#include "absl/status/status.h"
#include "client/zero/state/places_ahead.h"
#include "kernels/runtime/parallel/thread_pool.h"

namespace geminid::zero {

// Used by one thread at a time.
class UpdatesAhead {
 public:
  virtual ~UpdatesAhead() = default;

  // Updates the granule after those added before. Its state is fetched as soon as there is a place
  // for it, so from this call on nothing else may change the state or the gradient.
  virtual void Add(uint32_t granule) = 0;
  // Waits until version `epoch` of the first granule is complete in its spare. The caller must flip
  // the granule before the next call.
  virtual absl::Status FinishFirst(uint64_t epoch, kernels::ThreadPool* pool) = 0;
  // Waits until no update is in progress, so that the pool is free.
  virtual absl::Status WaitUpdates() = 0;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_UPDATE_UPDATES_AHEAD_H_
