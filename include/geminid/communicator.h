// A group of ranks that move and reduce memory together.
//
//   auto comm = collectives::MakeSelfCommunicator();  // or Connect(), in geminid/connect.h
//   std::vector<float> norm = {...};
//   absl::Status status = comm->AllReduce(norm, norm, ReduceOp::kSum);
//
// Contract of every backend (in-process, shared memory, TCP, both over several hosts, NCCL):
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
//  * The first such error poisons the communicator: every later call but Shrink() returns the same
//    error at once. The outputs of the failed operation hold anything. Arguments refused before
//    anything is sent (INVALID_ARGUMENT naming the parameter) do not poison.
//  * Buffers are host memory; NCCL's are memory of the rank's GPU. Destroying a communicator while
//    a peer still waits for it counts as leaving: the peer gets UNAVAILABLE.
#ifndef GEMINID_COMMUNICATOR_H_
#define GEMINID_COMMUNICATOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "geminid/buffer.h"
#include "geminid/export.h"

namespace geminid::collectives {

class CommunicatorBackend;  // of the library
struct Operation;           // of the library

enum class OpKind : uint8_t {
  kAllGather = 0,
  kReduceScatter,
  kAllReduce,
  kBroadcast,
  kAllToAll,
  kSend,
  kReceive,
  kBarrier,
  kReduce,
  kGather,
};
inline constexpr int kOpKindCount = 10;

GEMINID_EXPORT const char* Name(OpKind kind);

// Longest wait for a peer inside one operation, unless SetTimeout() says otherwise.
inline constexpr absl::Duration kDefaultTimeout = absl::Seconds(60);

// Longest label of an operation.
inline constexpr size_t kMaxLabelBytes = 40;

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
//   Reduce, Gather of n bytes per rank   n from each peer to the root
//   AllToAll of n bytes per pair         n sent to and received from each peer
//   Send, Receive of n bytes             n
struct PeerTraffic {
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  friend bool operator==(const PeerTraffic&, const PeerTraffic&) = default;
};

// What the operations of one kind moved.
struct OperationTraffic {
  uint64_t calls = 0;              // completed
  double seconds = 0;              // in those, waits for other ranks among them
  std::vector<PeerTraffic> peers;  // by rank
  // What really came over TCP in the completed ones: over hosts and ranks from other hosts, of
  // reductions by the way they went (see CommunicatorStats::chained); with "tcp" everything. What
  // NCCL moves is not counted.
  uint64_t network_bytes_received = 0;
};

// Between hosts, as measured when the ranks connected; the same on all ranks.
struct LinkCosts {
  double meeting_seconds = 0;        // until the ranks of a host know that all have come
  double exchange_seconds = 0;       // a small message to another host and one from there
  double flat_exchange_seconds = 0;  // the same with every rank at once
  double seconds_per_byte = 0;       // on the link of a host, in one direction
  friend bool operator==(const LinkCosts&, const LinkCosts&) = default;
};

struct CommunicatorStats {
  std::vector<PeerTraffic> peers;  // by rank; the own entry stays 0
  // By rank, what really went there and came from there over TCP. With "tcp" that is `peers`, on
  // one host nothing, and over hosts and ranks less than `peers`, with fewer partners.
  std::vector<PeerTraffic> network;
  std::array<uint64_t, kOpKindCount> operations = {};  // completed, by OpKind
  // By OpKind, of this communicator and of all that were made from it by Duplicate and Subset, and
  // from those. A SendReceive is a call of each, and its seconds are Send's.
  std::array<OperationTraffic, kOpKindCount> traffic = {};
  // Over hosts and ranks. Reductions of this rank that went from host to host, because that
  // promised to be faster than messages from each rank to each. link_costs are the costs by which
  // that was decided; none were measured where there is no choice.
  std::array<uint64_t, kOpKindCount> chained = {};
  std::optional<LinkCosts> link_costs = std::nullopt;
  // Now, of this rank's memory: what NCCL was told of, which it may move without a copy through
  // memory of its own. 0 with the other backends, and where a rank's NCCL is older than 2.19.
  uint64_t registered_bytes = 0;
};

// Charges memory of this process to an account; it is given back when what is returned is
// destroyed.
using SegmentCharger =
    std::function<absl::StatusOr<std::shared_ptr<void>>(const std::string& name, uint64_t bytes)>;

class Communicator;

// What is left of a group; see Communicator::Shrink.
struct Survivors {
  std::unique_ptr<Communicator> communicator;
  std::vector<int> ranks;  // in the group before, by rank in this one: ascending
};

class GEMINID_EXPORT Communicator {
 public:
  explicit Communicator(std::unique_ptr<CommunicatorBackend> backend);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int Rank() const;
  int WorldSize() const;
  // "shm", "tcp", "hierarchical", "local" or "nccl".
  const char* BackendName() const;

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

  // On the root, out = reduction of all `in`, and may be `in` itself. The others' `out` is not
  // touched and may be empty. The root holds as many bytes beside it as all `in` have.
  absl::Status Reduce(ConstBuffer in, Buffer out, int root, ReduceOp op = ReduceOp::kSum,
                      ReduceOptions options = {});

  // On the root, out = in of rank 0, in of rank 1, ...; `in` may be its own slice of `out`. The
  // others' `out` is not touched and may be empty.
  absl::Status Gather(ConstBuffer in, Buffer out, int root);

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

  // What the collectives from now on are about, such as "chunk 3": ranks with different labels
  // disagree, and the message has both. Cut to kMaxLabelBytes. Only between operations.
  void SetLabel(std::string_view label);

  // Makes the pending and all later operations of all ranks fail with ABORTED and `reason`.
  // Any thread; returns at once; the first abort or failure wins.
  void Abort(const std::string& reason);

  // OK, or the error that poisoned the communicator.
  absl::Status health() const;

  CommunicatorStats Stats() const;

  // Holds from the next operation on. Only between operations.
  void SetTimeout(absl::Duration timeout);
  absl::Duration timeout() const;

  // A second, independent communicator of the same ranks, for another thread. A collective: all
  // ranks call it with the same name. Those who wait for others in it hear of an abort of this one,
  // but where NCCL makes it.
  absl::StatusOr<std::unique_ptr<Communicator>> Duplicate(const std::string& name);

  // A communicator of the given ranks, which become 0, 1, ... in that order; `ranks` contains this
  // rank. Collective among those ranks only: disjoint subsets may be made at the same time (the
  // rows of a mesh).
  absl::StatusOr<std::unique_ptr<Communicator>> Subset(const std::string& name,
                                                       std::span<const int> ranks);

  // After a failure: a new communicator of those ranks that call this too, in the order they had.
  // It waits, at most for the timeout, for every other rank to call it, to die or to destroy its
  // communicator; DEADLINE_EXCEEDED names those that do none of it. All survivors get the same
  // group, or an error. Where nothing has failed, this fails what the others are doing (ABORTED).
  // Once it has succeeded this communicator is of no further use.
  //
  // A rank that dies meanwhile: over shared memory it is left out, or is in the group, whose first
  // operation names it. Over TCP the survivors get an error within the timeout, unless it died
  // before it called this. UNIMPLEMENTED with NCCL: shrink the ranks' communicator of the host's
  // memory, and connect anew.
  absl::StatusOr<Survivors> Shrink();

  // Memory that the ranks of a host share is made by the first of them. Until the result is
  // destroyed, `charger` is told of the memory that this rank has made for this communicator and
  // for the others from the same Connect. It is told of later memory before that is made. Its error
  // is that of this call, or of the Duplicate, Subset or Shrink on every rank that takes part in
  // it. Null: another charger is told already. Other backends than "shm" and "hierarchical" share
  // nothing.
  absl::StatusOr<std::shared_ptr<void>> ChargeSegments(SegmentCharger charger);

 private:
  friend CommunicatorBackend& BackendOf(Communicator& communicator);  // of the library

  absl::Status Finish(OpKind kind, absl::Status status);
  absl::Status CheckPeer(int peer, const char* what) const;
  Operation Begin(Operation operation);

  const std::unique_ptr<CommunicatorBackend> backend_;
  std::array<char, kMaxLabelBytes> label_ = {};
  std::vector<std::pair<std::string, int>> names_;  // subsets made so far, by key
};

// The communicator of a job with one process.
GEMINID_EXPORT std::unique_ptr<Communicator> MakeSelfCommunicator();

}  // namespace geminid::collectives

#endif  // GEMINID_COMMUNICATOR_H_
