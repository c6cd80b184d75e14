// The part of an NCCL communicator that knows NCCL and the driver: queues on a stream of its own,
// and waits there for the GPU while it watches the peers.
#ifndef GEMINID_COLLECTIVES_NCCL_NCCL_GROUP_H_
#define GEMINID_COLLECTIVES_NCCL_NCCL_GROUP_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/nccl/nccl_buffers.h"
#include "collectives/nccl/nccl_communicator.h"
#include "collectives/operation.h"
#include "gpu/nccl_api.h"

namespace geminid::collectives {

// Of one thread at a time, but for the registering of memory.
class NcclGroup final : public BufferUser {
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
  ~NcclGroup() override;

  const NcclPlace& place() const { return place_; }

  // Tells NCCL of place().buffers, of rows and of `staging_bytes` of staging. False if there are
  // none or any of it was not taken; then, and when it was so on another rank, TellNothing takes
  // all back. NCCL's rule: its memory is registered on all ranks of a call or on none.
  bool TellAll(size_t staging_bytes);
  void TellNothing();
  // Whether NCCL may be given it: it was told of nothing, or of all of this at once.
  bool MayGive(std::span<const std::byte> memory) const;

  // Of a range that comes or goes; waits for an operation under way. What NCCL refuses may not be
  // given to it.
  bool Register(std::span<std::byte> memory) override;
  void Deregister(std::span<std::byte> memory) override;  // nothing, if it is not registered
  uint64_t registered_bytes() const { return registered_bytes_; }

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

  // Device memory of at least so many bytes, until the next call, which NCCL may be given. Rows are
  // what is added up; what may not be given goes by way of staging.
  absl::StatusOr<std::byte*> Rows(size_t bytes) { return Grow(bytes, &rows_); }
  absl::StatusOr<std::byte*> Staging(size_t bytes) { return Grow(bytes, &staging_); }

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

  struct Room {
    CUdeviceptr place = 0;
    size_t bytes = 0;
    std::span<std::byte> span() const { return {reinterpret_cast<std::byte*>(place), bytes}; }
  };
  struct Registered {
    size_t bytes = 0;
    void* handle = nullptr;  // NCCL's
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
  absl::StatusOr<std::byte*> Grow(size_t bytes, Room* room);

  const NcclPlace place_;
  const gpu::NcclApi* const nccl_;
  const Watch watch_;
  // A communicator is not for two threads at once: an operation holds this until its end.
  mutable std::mutex calls_;
  gpu::NcclComm comm_ = nullptr;                       // null: aborted
  std::map<const std::byte*, Registered> registered_;  // guarded by calls_
  std::atomic<uint64_t> registered_bytes_ = 0;
  std::atomic<bool> tells_ = false;  // NCCL of memory
  CUstream stream_ = nullptr;
  CUevent passed_ = nullptr;
  Room rows_;
  Room staging_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_NCCL_NCCL_GROUP_H_
