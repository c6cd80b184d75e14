// A group of ranks that move and reduce memory together.
//
//   auto comm = collectives::MakeSelfCommunicator();  // or Connect(), in connect/connect.h
//   std::vector<float> norm = {...};
//   absl::Status status = comm->AllReduce(norm, norm, ReduceOp::kSum);
//
// Contract of every implementation (in-process, shared memory, TCP):
//  * Operations block until this rank's part is done. All ranks call the same collectives in the
//    same order with the same sizes; Send and Receive are matched in order per pair of ranks. Ranks
//    that disagree get INVALID_ARGUMENT saying who called what.
//  * One thread at a time per communicator. A second thread takes a Duplicate(). Abort(), Stats()
//    and health() may be called from any thread.
//  * Results are a function of the inputs alone: reductions add in rank order, bfloat16 and float16
//    in fp32, multiply by `scale` once and round once to nearest even. Every rank, every backend
//    and every timing gives the same bits. NaN wins a minimum or maximum. Integers wrap.
//  * A rank that does not arrive within the timeout gives DEADLINE_EXCEEDED naming it; a rank that
//    dies gives UNAVAILABLE naming it within two seconds; Abort() gives ABORTED on all ranks.
//  * The first such error poisons the communicator: every later call returns the same error at
//    once. The outputs of the failed operation hold anything. Arguments refused before anything is
//    sent (INVALID_ARGUMENT naming the parameter) do not poison.
//  * Buffers are host memory. Destroying a communicator while a peer still waits for it counts as
//    leaving: the peer gets UNAVAILABLE.
#ifndef GEMINID_COLLECTIVES_COMMUNICATOR_H_
#define GEMINID_COLLECTIVES_COMMUNICATOR_H_

#include <array>
#include <atomic>
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
#include "collectives/types.h"

namespace geminid::collectives {

// Longest wait for a peer inside one operation, unless SetTimeout() says otherwise.
inline constexpr absl::Duration kDefaultTimeout = absl::Seconds(60);

// AllReduce of at most this many bytes sends the whole buffer to every peer (one exchange instead
// of two); beyond it, it is a reduce-scatter followed by an all-gather. The same on all backends,
// because it decides the bytes that Stats() reports. The result does not depend on it.
inline constexpr size_t kDirectAllReduceBytes = 32 * 1024;

struct ReduceOptions {
  // The sum is multiplied by this before it is rounded: 1.0 / WorldSize() makes a mean that cannot
  // overflow on the way. In fp32 for the 16- and 32-bit formats. Must be 1 for integers, kMin,
  // kMax.
  double scale = 1.0;
};

// Payload bytes this rank had to move for one peer, independent of the backend. With P ranks:
//   AllGather of n bytes per rank        n sent to and received from each peer
//   ReduceScatter of S bytes             the peer's slice sent (S/P), the own slice received
//   AllReduce of S bytes                 S to and from each peer up to kDirectAllReduceBytes, else
//                                        ReduceScatter + AllGather: about 2 S / P each way
//   Broadcast of n bytes                 the root sends n to each peer, each peer receives n
//   AllToAll of n bytes per pair         n sent to and received from each peer
//   Send and Receive of n bytes          n
struct PeerTraffic {
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  friend bool operator==(const PeerTraffic&, const PeerTraffic&) = default;
};

struct CommunicatorStats {
  std::vector<PeerTraffic> peers;                      // by rank; the own entry stays 0
  std::array<uint64_t, kOpKindCount> operations = {};  // completed, by OpKind
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int Rank() const { return rank_; }
  int WorldSize() const { return world_size_; }
  // "shm", "gloo" or "local".
  virtual const char* BackendName() const = 0;

  // out = in of rank 0, in of rank 1, ... `out.count` is P times `in.count`. `in` may be this
  // rank's own slice of `out`; otherwise they must not overlap.
  absl::Status AllGather(ConstBuffer in, Buffer out);

  // out = slice Rank() of the reduction of all `in`. `in.count` is P times `out.count`. `out` may
  // be this rank's own slice of `in`; otherwise they must not overlap.
  absl::Status ReduceScatter(ConstBuffer in, Buffer out, ReduceOp op = ReduceOp::kSum,
                             ReduceOptions options = {});

  // out = reduction of all `in`, the same on every rank. `out` may be `in` itself.
  absl::Status AllReduce(ConstBuffer in, Buffer out, ReduceOp op = ReduceOp::kSum,
                         ReduceOptions options = {});

  // Every rank ends with the root's `inout`.
  absl::Status Broadcast(Buffer inout, int root);

  // Slice q of `in` goes to rank q; slice q of `out` comes from rank q. The counts are equal and
  // divisible by P. No overlap.
  absl::Status AllToAll(ConstBuffer in, Buffer out);

  // One message to `peer`. May return before the peer receives it (then `in` is already free), and
  // may block until the peer does: two ranks that both Send first must use SendReceive.
  absl::Status Send(ConstBuffer in, int peer, int tag = 0);
  // The next message from `peer`; its size, type and tag must be as given.
  absl::Status Receive(Buffer out, int peer, int tag = 0);
  // Both at once, without deadlock: rings and pipeline neighbours use this. A rank may name itself.
  absl::Status SendReceive(ConstBuffer in, int send_peer, Buffer out, int receive_peer,
                           int tag = 0);

  // Returns when all ranks have called it.
  absl::Status Barrier();

  // Makes the pending and all later operations of all ranks fail with ABORTED and `reason`.
  // Any thread; returns at once; the first abort or failure wins.
  void Abort(const std::string& reason);

  // OK, or the error that poisoned the communicator.
  absl::Status health() const;

  CommunicatorStats Stats() const;

  // Holds from the next operation on. Only between operations.
  void SetTimeout(absl::Duration timeout) { timeout_ = timeout; }
  absl::Duration timeout() const { return timeout_; }

  // A second, independent communicator of the same ranks, for another thread. A collective: all
  // ranks call it with the same name.
  absl::StatusOr<std::unique_ptr<Communicator>> Duplicate(const std::string& name);

  // A communicator of the given ranks, which become 0, 1, ... in that order; `ranks` contains this
  // rank. Collective among those ranks only: disjoint subsets may be made at the same time (the
  // rows of a mesh).
  absl::StatusOr<std::unique_ptr<Communicator>> Subset(const std::string& name,
                                                       std::span<const int> ranks);

 protected:
  Communicator(int rank, int world_size, absl::Duration timeout);

  // What a backend provides. Arguments are checked, counts are elements, and slices follow the
  // partition; `in` of DoAllGather is this rank's slice, `out` of DoReduceScatter too. A backend
  // returns a failure that concerns the group through Poison(), and counts traffic as it moves it.
  virtual absl::Status DoAllGather(const Operation& operation, const std::byte* in, std::byte* out,
                                   const Partition& parts) = 0;
  virtual absl::Status DoReduceScatter(const Operation& operation, const std::byte* in,
                                       std::byte* out, const Partition& parts) = 0;
  virtual absl::Status DoBroadcast(const Operation& operation, std::byte* inout) = 0;
  virtual absl::Status DoAllToAll(const Operation& operation, const std::byte* in,
                                  std::byte* out) = 0;
  virtual absl::Status DoBarrier(const Operation& operation) = 0;
  // Either half may be absent (null); peers are never this rank.
  struct Message {
    Operation operation;
    int peer = -1;
    const std::byte* in = nullptr;  // of a send
    std::byte* out = nullptr;       // of a receive
    size_t bytes() const { return operation.count * SizeOf(operation.dtype); }
  };
  virtual absl::Status DoSendReceive(const Message* send, const Message* receive) = 0;
  // Tells the peers. Called at most once, from any thread, with the status already recorded here.
  virtual void DoAbort(const absl::Status& status) = 0;
  // The failure that the group agreed on, if this rank has not noticed it yet.
  virtual absl::Status DoCheckHealth() const { return absl::OkStatus(); }
  // `key` is unique among the subsets made from this communicator and the same on all members.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> DoSubset(const std::string& key,
                                                                 std::span<const int> ranks) = 0;

  // Records the first failure and returns the recorded one.
  absl::Status Poison(const absl::Status& status) const;

  void CountSent(int peer, size_t bytes) {
    traffic_[static_cast<size_t>(peer)].sent.fetch_add(bytes, std::memory_order_relaxed);
  }
  void CountReceived(int peer, size_t bytes) {
    traffic_[static_cast<size_t>(peer)].received.fetch_add(bytes, std::memory_order_relaxed);
  }

 private:
  struct AtomicTraffic {
    std::atomic<uint64_t> sent{0};
    std::atomic<uint64_t> received{0};
  };

  absl::Status Finish(OpKind kind, absl::Status status);
  absl::Status CheckPeer(int peer, const char* what) const;
  absl::Status AllReduceDirect(const Operation& operation, const std::byte* in, std::byte* out);
  absl::Status AllReduceSliced(const Operation& operation, const std::byte* in, std::byte* out);

  const int rank_;
  const int world_size_;
  absl::Duration timeout_;
  std::vector<AtomicTraffic> traffic_;
  std::array<std::atomic<uint64_t>, kOpKindCount> operations_ = {};
  std::vector<std::byte> scratch_;                  // of AllReduceDirect, P times its limit at most
  std::vector<std::pair<std::string, int>> names_;  // subsets made so far, by key
  mutable std::mutex failure_mutex_;
  mutable absl::Status failure_;
  mutable std::atomic<bool> failed_{false};
};

// The communicator of a job with one process.
std::unique_ptr<Communicator> MakeSelfCommunicator();

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_COMMUNICATOR_H_
