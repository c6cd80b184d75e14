// Collectives on GPU memory, executed by NCCL.
#ifndef GEMINID_COLLECTIVES_NCCL_NCCL_COMMUNICATOR_H_
#define GEMINID_COLLECTIVES_NCCL_NCCL_COMMUNICATOR_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "collectives/nccl/nccl_buffers.h"
#include "geminid/communicator.h"
#include "gpu/driver_api.h"

namespace geminid::collectives {

// A rank's GPU. All members outlive the communicator.
struct NcclPlace {
  const gpu::DriverApi* driver = nullptr;
  CUdevice device = 0;
  CUcontext context = nullptr;  // the primary context
  // Memory to register with NCCL, or null. Communicators may share it.
  std::shared_ptr<NcclBuffers> buffers = nullptr;
};

// A collective of the ranks of `control`, a communicator of host memory that this one takes over.
// It distributes NCCL's unique id. Before every operation the ranks compare it over `control`,
// which detects and reports disagreement, absence, death and Abort(). NCCL moves the bytes, and is
// aborted after an error.
//
// Buffers are memory of the GPU. Work that was queued on them must be complete. Operations run on a
// stream of the communicator's own, and have completed when they return. Reductions give the bits
// that the contract demands: ranks exchange slices, and our kernels add them in rank order
// (kernels/numeric/reduce_rows). They need as much device memory, from the driver, as all ranks'
// slices together; `scratch_bytes` of it are allocated at once.
//
// If all ranks have an NCCL that supports it (2.19), `place.buffers` are registered: NCCL may then
// move them without a copy through its own memory; Stats() counts them. NCCL demands registered
// memory of all ranks of a call, or of none. So data outside, or across two ranges, goes through
// memory that is registered, `scratch_bytes` more.
//
// UNAVAILABLE, on all ranks alike, if a rank has no NCCL or two ranks have the same GPU. `control`
// is lost after any error, so pass a duplicate of the communicator that the ranks continue with.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectNccl(const NcclPlace& place,
                                                          std::unique_ptr<Communicator> control,
                                                          size_t scratch_bytes = 0);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_NCCL_NCCL_COMMUNICATOR_H_
