// Executes transfers: requests tickets piece by piece, and runs them on the copy streams.
#ifndef GEMINID_CLIENT_SRC_TRANSFERS_H_
#define GEMINID_CLIENT_SRC_TRANSFERS_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/device/device.h"
#include "client/src/chunk_table.h"
#include "client/src/request_port.h"
#include "geminid/session.h"

namespace geminid {

// Larger copies are split, so that an urgent copy waits for at most a few pieces.
inline constexpr uint64_t kMaxPieceBytes = uint64_t{16} << 20;

// Thread-safe.
class Transfers {
 public:
  // All must outlive this object. `port` must have stopped before this object is destroyed.
  Transfers(RequestPort* port, device::Device* device, const ChunkTable* chunks,
            shm::ClientSegment* client)
      : port_(port), device_(device), chunks_(chunks), client_(client) {}

  // See Session::Transfer; completes `outcome`. `on_refusal`, if set, gets the daemon's reason for
  // refusing before the outcome is known.
  using OnRefusal = std::function<void(shm::ErrorReason)>;
  void Start(const TransferSpec& spec, std::shared_ptr<Pending::State> outcome,
             OnRefusal on_refusal = nullptr);
  Pending Start(const TransferSpec& spec);
  std::shared_ptr<Pending::State> NewOutcome() { return std::make_shared<Pending::State>(port_); }

  // Waits until no transfer is in progress. DEADLINE_EXCEEDED if one still is after `timeout`.
  absl::Status AwaitAll(absl::Duration timeout) const;

  // Tickets that arrive from now on are not executed.
  void StopCopying() { stopping_.store(true); }

  TransferTotals totals() const;

 private:
  class Active;
  absl::Status Check(const TransferSpec& spec) const;
  void CountCopy(shm::Direction direction, uint64_t bytes);

  RequestPort* const port_;
  device::Device* const device_;
  const ChunkTable* const chunks_;
  shm::ClientSegment* const client_;
  // Transfers whose outcomes are not complete.
  mutable struct {
    std::mutex mutex;
    std::condition_variable none;
    uint64_t count = 0;
  } in_progress_;
  std::atomic<bool> stopping_ = false;
  std::atomic<uint64_t> to_device_bytes_ = 0;
  std::atomic<uint64_t> to_host_bytes_ = 0;
  std::atomic<uint64_t> copies_ = 0;
};

}  // namespace geminid

#endif  // GEMINID_CLIENT_SRC_TRANSFERS_H_
