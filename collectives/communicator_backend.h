// Moves a communicator's bytes; one implementation per way of reaching the other ranks.
#ifndef GEMINID_COLLECTIVES_COMMUNICATOR_BACKEND_H_
#define GEMINID_COLLECTIVES_COMMUNICATOR_BACKEND_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/operation.h"
#include "collectives/partition.h"
#include "collectives/traffic_counter.h"
#include "geminid/communicator.h"

namespace geminid::collectives {

class SegmentBooks;

// The Communicator has checked all arguments. Counts are elements. Slices follow the partition;
// `in` of AllGather and `out` of ReduceScatter are this rank's slice. A backend returns a failure
// of the group through Poison(), and counts traffic when it moves it.
class CommunicatorBackend {
 public:
  virtual ~CommunicatorBackend() = default;
  CommunicatorBackend(const CommunicatorBackend&) = delete;
  CommunicatorBackend& operator=(const CommunicatorBackend&) = delete;

  int Rank() const { return rank_; }
  int WorldSize() const { return world_size_; }
  absl::Duration timeout() const { return timeout_; }
  void SetTimeout(absl::Duration timeout) { timeout_ = timeout; }
  virtual const char* BackendName() const = 0;

  virtual absl::Status DoAllGather(const Operation& operation, const std::byte* in, std::byte* out,
                                   const Partition& parts) = 0;
  virtual absl::Status DoReduceScatter(const Operation& operation, const std::byte* in,
                                       std::byte* out, const Partition& parts) = 0;
  virtual absl::Status DoBroadcast(const Operation& operation, std::byte* inout) = 0;
  virtual absl::Status DoAllToAll(const Operation& operation, const std::byte* in,
                                  std::byte* out) = 0;
  virtual absl::Status DoBarrier(const Operation& operation) = 0;

  // The defaults consist of the functions above. All-reduce: an all-gather up to
  // kDirectAllReduceBytes, beyond that a reduce-scatter and an all-gather. Reduce and gather:
  // messages to the root. `out` is null if this rank gets no result.
  virtual absl::Status DoAllReduce(const Operation& operation, const std::byte* in, std::byte* out);
  virtual absl::Status DoReduce(const Operation& operation, const std::byte* in, std::byte* out);
  virtual absl::Status DoGather(const Operation& operation, const std::byte* in, std::byte* out);

  // Either message may be absent (null). A peer is never this rank itself.
  struct Message {
    Operation operation;
    int peer = -1;
    const std::byte* in = nullptr;  // of a send
    std::byte* out = nullptr;       // of a receive
    size_t bytes() const { return operation.count * SizeOf(operation.dtype); }
  };
  virtual absl::Status DoSendReceive(const Message* send, const Message* receive) = 0;
  // `key` is unique among this communicator's subsets, and the same on all members.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> DoSubset(const std::string& key,
                                                                 std::span<const int> ranks,
                                                                 Messages messages) = 0;

  // Called on a failed communicator, and again if it returned an error; see
  // Communicator::Shrink.
  virtual absl::StatusOr<Survivors> DoShrink();

  // Copies what a rank sends to itself, before it returns. For host memory, unless a backend
  // overrides it.
  virtual absl::Status CopyOwn(const std::byte* from, size_t bytes, std::byte* to);

  // Fails this and all later operations here and on the peers, unless the group has failed already.
  void Abort(const absl::Status& status);
  // Records the first failure and returns the recorded one.
  absl::Status Poison(const absl::Status& status) const;
  // OK, or the recorded failure.
  absl::Status health() const;
  // The same, after a check for dead peers: for callers that wait for the peers by other means.
  absl::Status DetectDeadRanks();

  // Begins an operation of this kind: traffic is counted for it from now on, and its time starts.
  // Messages that are received count as Receive.
  void BeginCounting(OpKind kind);
  void CountCompleted(OpKind kind);
  const std::shared_ptr<TrafficCounter>& counter() const { return counter_; }
  virtual CommunicatorStats Stats() const;
  // By rank: the traffic that Count*() has counted.
  std::vector<PeerTraffic> CountedTraffic() const;
  // Bytes that came over TCP so far; from other hosts only, if the backend knows hosts.
  virtual uint64_t NetworkReceived() const { return 0; }
  // The books of memory that its ranks share; null: they share none.
  virtual SegmentBooks* Books() const { return nullptr; }

 protected:
  CommunicatorBackend(int rank, int world_size, absl::Duration timeout);

  // Tells the peers. Called at most once, on any thread, after `status` was recorded here.
  virtual void DoAbort(const absl::Status& status) = 0;
  // The failure that the group agreed on, if this rank has not noticed it yet.
  virtual absl::Status DoCheckHealth() const { return absl::OkStatus(); }
  // By rank: the traffic over TCP.
  virtual std::vector<PeerTraffic> NetworkTraffic() const {
    return std::vector<PeerTraffic>(traffic_.size());
  }
  // Bytes of memory registered with the transport.
  virtual uint64_t RegisteredBytes() const { return 0; }

  // As DoCheckHealth, after a check for dead peers.
  virtual absl::Status DoDetectDeadRanks() { return DoCheckHealth(); }

  void CountSent(int peer, size_t bytes);
  void CountReceived(int peer, size_t bytes);

 private:
  absl::Status AllReduceDirect(const Operation& operation, const std::byte* in, std::byte* out);
  // Memory for `bytes` from each rank.
  std::byte* Scratch(size_t bytes);
  void ReduceScratch(const Operation& operation, std::byte* out) const;

  struct AtomicTraffic {
    std::atomic<uint64_t> sent{0};
    std::atomic<uint64_t> received{0};
  };

  const int rank_;
  const int world_size_;
  absl::Duration timeout_;
  std::vector<AtomicTraffic> traffic_;
  std::array<std::atomic<uint64_t>, kOpKindCount> operations_ = {};
  const std::shared_ptr<TrafficCounter> counter_;
  OpKind counted_ = OpKind::kBarrier;
  uint64_t network_received_ = 0;  // when the counted operation began
  std::chrono::steady_clock::time_point began_;
  std::vector<std::byte> scratch_;  // for the composed operations: P times `in`
  mutable std::mutex failure_mutex_;
  mutable absl::Status failure_;
  mutable std::atomic<bool> failed_{false};
};

// The backend of a communicator, which must outlive its use.
CommunicatorBackend& BackendOf(Communicator& communicator);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_COMMUNICATOR_BACKEND_H_
