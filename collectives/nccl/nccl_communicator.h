// Collectives on memory of GPUs, moved by NCCL.
#ifndef GEMINID_COLLECTIVES_NCCL_NCCL_COMMUNICATOR_H_
#define GEMINID_COLLECTIVES_NCCL_NCCL_COMMUNICATOR_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "collectives/nccl/nccl_buffers.h"
#include "geminid/communicator.h"
#include "gpu/driver_api.h"

namespace geminid::collectives {

// The GPU of a rank. All outlive the communicator.
struct NcclPlace {
  const gpu::DriverApi* driver = nullptr;
  CUdevice device = 0;
  CUcontext context = nullptr;  // its primary one
  // Memory to register with NCCL; may be null. Communicators share it.
  std::shared_ptr<NcclBuffers> buffers = nullptr;
};

// Collective over the ranks of `control`, a communicator of the host's memory that becomes this
// one's: it brings NCCL's unique id to all, and before every operation the ranks agree by it on
// what they do, so that disagreement, absence, death and Abort() are found and said as it does.
// NCCL moves the bytes; when something fails it is aborted.
//
// Buffers are memory of the GPU, and what was queued on them has been waited for. Operations are
// done when they return, on a stream of the communicator's own. Reductions have the contract's
// bits: the ranks exchange slices, and kernels of ours add them in rank order
// (kernels/numeric/reduce_rows). They take as much device memory of the driver's as all ranks'
// slices together; `scratch_bytes` of it are taken at once.
//
// Where all ranks have an NCCL that takes it (2.19), `place.buffers` are registered, which NCCL may
// then move without a copy through memory of its own; Stats() counts what is. NCCL's rule is that
// all ranks of a call pass registered memory or none does, so that what lies outside, or across the
// border of two ranges, goes through memory that is: `scratch_bytes` more.
//
// UNAVAILABLE, on all ranks alike, where one has no NCCL or two have the same GPU. After any error
// `control` is gone, so it is a duplicate of what the ranks go on with.
absl::StatusOr<std::unique_ptr<Communicator>> ConnectNccl(const NcclPlace& place,
                                                          std::unique_ptr<Communicator> control,
                                                          size_t scratch_bytes = 0);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_NCCL_NCCL_COMMUNICATOR_H_
