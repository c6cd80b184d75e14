// The part of an NCCL communicator that calls NCCL and the driver: queues work on a stream of its
// own, and waits for the GPU while it watches the peers.
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

// Used by one thread at a time, except for registering memory.
class NcclGroup final : public BufferUser {
 public:
  // Ends a wait with an error: a peer has died, or the group has failed.
  using Watch = std::function<absl::Status()>;

  // Blocks until the other ranks with this id have come.
  static absl::StatusOr<std::unique_ptr<NcclGroup>> Create(const NcclPlace& place,
                                                           const gpu::NcclApi* nccl,
                                                           const gpu::NcclId& id, int rank,
                                                           int world_size, absl::Duration timeout,
                                                           Watch watch);
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  ~NcclGroup() override;

  const NcclPlace& place() const { return place_; }

  // Registers place().buffers, the rows, and `staging_bytes` of staging. False if there are no
  // buffers or any registration failed. If it was false on any rank, TellNothing undoes it on all:
  // NCCL demands registered memory on all ranks of a call, or on none.
  bool TellAll(size_t staging_bytes);
  void TellNothing();
  // Whether NCCL may use `memory` itself: nothing is registered, or one registration has it.
  bool MayGive(std::span<const std::byte> memory) const;

  // Called when a range comes or goes; waits for an operation in progress. Memory that NCCL refuses
  // may not be passed to it.
  bool Register(std::span<std::byte> memory) override;
  void Deregister(std::span<std::byte> memory) override;  // no effect if `memory` is not registered
  uint64_t registered_bytes() const { return registered_bytes_; }

  // Calls `queue`, within NCCL's group or without one, which queues work on stream(). Then waits
  // until the stream has completed it. If that fails, NCCL is aborted, and nothing accesses the
  // buffers any more, unless the GPU hangs.
  absl::Status InGroup(const Operation& operation, absl::Duration timeout,
                       const std::function<gpu::NcclResult()>& queue);
  absl::Status OnStream(const Operation& operation, absl::Duration timeout,
                        const std::function<absl::Status()>& queue);

  const gpu::NcclApi& nccl() const { return *nccl_; }
  gpu::NcclComm comm() const { return comm_; }
  CUstream stream() const { return stream_; }
  absl::Status Check(CUresult result, const char* call) const;

  // Device memory of at least so many bytes, valid until the next call, which may be passed to
  // NCCL. Rows: the values to add up. Staging: for memory that may not be passed to NCCL.
  absl::StatusOr<std::byte*> Rows(size_t bytes) { return Grow(bytes, &rows_); }
  absl::StatusOr<std::byte*> Staging(size_t bytes) { return Grow(bytes, &staging_); }

 private:
  // Makes the context the thread's current one.
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
    void* handle = nullptr;  // of NCCL
  };

  NcclGroup(const NcclPlace& place, const gpu::NcclApi* nccl, Watch watch)
      : place_(place), nccl_(nccl), watch_(std::move(watch)) {}

  absl::Status MakeStream();
  // Waits until `is_done`. Errors: of NCCL or the peers, or the deadline.
  absl::Status Await(const std::string& what, absl::Duration timeout,
                     const std::function<absl::StatusOr<bool>()>& is_done);
  absl::Status AwaitReady(const std::string& what, absl::Duration timeout);
  absl::Status AwaitStream(const Operation& operation, absl::Duration timeout);
  absl::Status ErrorOf(gpu::NcclResult result, const std::string& what);
  // Aborts NCCL and returns `status`.
  absl::Status Abort(const absl::Status& status);
  absl::StatusOr<std::byte*> Grow(size_t bytes, Room* room);

  const NcclPlace place_;
  const gpu::NcclApi* const nccl_;
  const Watch watch_;
  // NCCL's communicator is not thread-safe: an operation holds this until its end.
  mutable std::mutex calls_;
  gpu::NcclComm comm_ = nullptr;                       // null: aborted
  std::map<const std::byte*, Registered> registered_;  // guarded by calls_
  std::atomic<uint64_t> registered_bytes_ = 0;
  std::atomic<bool> tells_ = false;  // memory is registered with NCCL
  CUstream stream_ = nullptr;
  CUevent passed_ = nullptr;
  Room rows_;
  Room staging_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_NCCL_NCCL_GROUP_H_
