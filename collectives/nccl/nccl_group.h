// The part of an NCCL communicator that knows NCCL and the driver: queues on a stream of its own,
// and waits there for the GPU while it watches the peers.
#ifndef GEMINID_COLLECTIVES_NCCL_NCCL_GROUP_H_
#define GEMINID_COLLECTIVES_NCCL_NCCL_GROUP_H_

#include <cstddef>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/nccl/nccl_communicator.h"
#include "collectives/operation.h"
#include "gpu/nccl_api.h"

namespace geminid::collectives {

// Of one thread at a time.
class NcclGroup {
 public:
  // What ends a wait: not OK when a peer has died or the group has failed.
  using Watch = std::function<absl::Status()>;

  // Meets the other ranks of the id.
  static absl::StatusOr<std::unique_ptr<NcclGroup>> Create(const NcclPlace& place,
                                                           const gpu::NcclApi* nccl,
                                                           const gpu::NcclId& id, int rank,
                                                           int world_size, absl::Duration timeout,
                                                           Watch watch);
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  ~NcclGroup();

  const NcclPlace& place() const { return place_; }

  // Calls `queue`, in NCCL's group or without one, which queues on stream(); then waits until the
  // stream has passed. When that fails NCCL is aborted, and nothing reads or writes the buffers any
  // more, unless the GPU hangs.
  absl::Status InGroup(const Operation& operation, absl::Duration timeout,
                       const std::function<gpu::NcclResult()>& queue);
  absl::Status OnStream(const Operation& operation, absl::Duration timeout,
                        const std::function<absl::Status()>& queue);

  const gpu::NcclApi& nccl() const { return *nccl_; }
  gpu::NcclComm comm() const { return comm_; }
  CUstream stream() const { return stream_; }
  absl::Status Check(CUresult result, const char* call) const;

  // Device memory of at least so many bytes, until the next call.
  absl::StatusOr<std::byte*> Scratch(size_t bytes);

 private:
  // Makes the context this thread's.
  class Scope {
   public:
    explicit Scope(const NcclPlace& place) : driver_(*place.driver) {
      driver_.ctx_push_current(place.context);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() {
      CUcontext mine = nullptr;
      driver_.ctx_pop_current(&mine);
    }

   private:
    const gpu::DriverApi& driver_;
  };

  NcclGroup(const NcclPlace& place, const gpu::NcclApi* nccl, Watch watch)
      : place_(place), nccl_(nccl), watch_(std::move(watch)) {}

  absl::Status MakeStream();
  // Until `is_done`; what went wrong with NCCL, with the peers, or the deadline.
  absl::Status Await(const std::string& what, absl::Duration timeout,
                     const std::function<absl::StatusOr<bool>()>& is_done);
  absl::Status AwaitReady(const std::string& what, absl::Duration timeout);
  absl::Status AwaitStream(const Operation& operation, absl::Duration timeout);
  absl::Status ErrorOf(gpu::NcclResult result, const std::string& what);
  // Returns `status`.
  absl::Status Abort(const absl::Status& status);

  const NcclPlace place_;
  const gpu::NcclApi* const nccl_;
  const Watch watch_;
  gpu::NcclComm comm_ = nullptr;  // null: aborted
  CUstream stream_ = nullptr;
  CUevent passed_ = nullptr;
  CUdeviceptr scratch_ = 0;
  size_t scratch_bytes_ = 0;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_NCCL_NCCL_GROUP_H_
