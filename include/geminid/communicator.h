// A group of ranks that move and reduce memory together.
//
//   auto comm = collectives::MakeSelfCommunicator();  // or Connect(), in geminid/connect.h
//   std::vector<float> norm = {...};
//   absl::Status status = comm->AllReduce(norm, norm, ReduceOp::kSum);
//
// Contract of every backend (in-process, shared memory, TCP, both over several hosts, NCCL):
//  * Operations block until this rank's part is complete. All ranks call the same collectives in
//    the same order with the same sizes. Send and Receive are matched in order per pair of ranks.
//    Ranks that disagree get INVALID_ARGUMENT, which says which rank called what. Those that gave a
//    Broadcast different roots may get it from their next collective.
//  * One thread at a time may use a communicator. A second thread takes a Duplicate(). Abort(),
//    Stats() and health() may be called on any thread.
//  * Results depend on the inputs only. Reductions add in rank order, bfloat16 and float16 in fp32,
//    then multiply by `scale` once and round once to nearest even. So every rank, every backend
//    and every timing gives the same bits. NaN wins a minimum or maximum. Integers wrap.
//  * If a rank does not arrive within the timeout, the others get DEADLINE_EXCEEDED. If one dies,
//    they get UNAVAILABLE within two seconds. Both name the rank. Abort() gives ABORTED everywhere.
//  * The first such error poisons the communicator: every later call except Shrink() returns the
//    same error at once. Outputs of the failed operation are undefined. INVALID_ARGUMENT for an
//    argument that is refused before anything is sent does not poison, and names the parameter.
//  * Buffers are host memory; with NCCL memory of the rank's GPU. Destroying a communicator while a
//    peer still waits for this rank counts as leaving: the peer gets UNAVAILABLE.
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

class CommunicatorBackend;  // internal
struct Operation;           // internal

// The size of what passes through a communicator. kSmall: some KiB at a time, such as numbers that
// ranks agree on. It shares less memory, and more bytes take more turns.
enum class Messages : uint8_t { kLarge, kSmall };

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

// The longest wait for a peer within one operation, unless SetTimeout() changes it.
inline constexpr absl::Duration kDefaultTimeout = absl::Seconds(60);

// The longest label of an operation.
inline constexpr size_t kMaxLabelBytes = 40;

// AllReduce of at most so many bytes sends the whole buffer to every peer: one exchange instead of
// two. Larger ones are a reduce-scatter and an all-gather. The limit is the same on all backends,
// because the bytes in Stats() depend on it. The result does not.
inline constexpr size_t kDirectAllReduceBytes = 32 * 1024;

struct ReduceOptions {
  // Factor of the sum before it is rounded: 1.0 / WorldSize() gives a mean that cannot
  // overflow on the way. In fp32 for the 16- and 32-bit formats. Must be 1 for integers, kMin
  // and kMax.
  double scale = 1.0;
};

// Payload bytes that this rank had to move for one peer, on any backend. With P ranks:
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

// The traffic of the operations of one kind.
struct OperationTraffic {
  uint64_t calls = 0;              // completed
  double seconds = 0;              // in those calls, including waits for other ranks
  std::vector<PeerTraffic> peers;  // by rank
  // Bytes that completed calls really received over TCP: over hosts and ranks from other hosts, for
  // reductions by the chosen way (see CommunicatorStats::chained); with "tcp" all bytes. Bytes that
  // NCCL moves are not counted.
  uint64_t network_bytes_received = 0;
};

// Costs between hosts, measured when the ranks connected; the same on all ranks.
struct LinkCosts {
  double meeting_seconds = 0;        // until a host's ranks know that all have come
  double exchange_seconds = 0;       // a small message to another host and one back
  double flat_exchange_seconds = 0;  // the same, with all ranks at once
  double seconds_per_byte = 0;       // on a host's link, in one direction
  friend bool operator==(const LinkCosts&, const LinkCosts&) = default;
};

struct CommunicatorStats {
  std::vector<PeerTraffic> peers;  // by rank; the own entry stays 0
  // By rank: bytes really sent and received over TCP. With "tcp" this equals `peers`, on one host
  // it is 0. Over hosts and ranks it is less than `peers`, with fewer partners.
  std::vector<PeerTraffic> network;
  std::array<uint64_t, kOpKindCount> operations = {};  // completed, by OpKind
  // By OpKind: of this communicator, and of all that were made from it by Duplicate and Subset,
  // directly or indirectly. A SendReceive counts as a call of both, and its seconds as Send's.
  std::array<OperationTraffic, kOpKindCount> traffic = {};
  // Over hosts and ranks. chained: this rank's reductions that went from host to host, because that
  // promised to be faster than messages from each rank to each rank. link_costs: the costs that
  // decided that; unset if there is no choice.
  std::array<uint64_t, kOpKindCount> chained = {};
  std::optional<LinkCosts> link_costs = std::nullopt;
  // Bytes of this rank's memory that are now registered with NCCL, which may move them without a
  // copy through its own memory. 0 with other backends, or if a rank's NCCL is older than 2.19.
  uint64_t registered_bytes = 0;
};

// Charges memory of this process to an account. Destroying the result ends the
// charge.
using SegmentCharger =
    std::function<absl::StatusOr<std::shared_ptr<void>>(const std::string& name, uint64_t bytes)>;

class Communicator;

// The rest of a group; see Communicator::Shrink.
struct Survivors {
  std::unique_ptr<Communicator> communicator;
  std::vector<int> ranks;  // in the old group, by rank in the new one: ascending
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

  // out = the reduction of all `in`, the same on every rank. `out` may be `in` itself.
  absl::Status AllReduce(ConstBuffer in, Buffer out, ReduceOp op = ReduceOp::kSum,
                         ReduceOptions options = {});

  // Every rank's `inout` becomes the root's.
  absl::Status Broadcast(Buffer inout, int root);

  // On the root: out = the reduction of all `in`; it may be `in` itself. On others `out` is not
  // touched and may be empty. The root needs as much memory as all `in` together in addition.
  absl::Status Reduce(ConstBuffer in, Buffer out, int root, ReduceOp op = ReduceOp::kSum,
                      ReduceOptions options = {});

  // On the root: out = in of rank 0, in of rank 1, ...; `in` may be its own slice of `out`. On
  // other ranks `out` is not touched and may be empty.
  absl::Status Gather(ConstBuffer in, Buffer out, int root);

  // Slice q of `in` goes to rank q; slice q of `out` comes from rank q. The counts are equal and
  // divisible by P. No overlap.
  absl::Status AllToAll(ConstBuffer in, Buffer out);

  // One message to `peer`. May return before the peer receives it (then `in` may be reused), and
  // may block until the peer does: two ranks that both Send first must use SendReceive.
  absl::Status Send(ConstBuffer in, int peer, int tag = 0);
  // The next message from `peer`; its size, type and tag must match the arguments.
  absl::Status Receive(Buffer out, int peer, int tag = 0);
  // Both at once, without deadlock, for rings and pipeline neighbours. A rank may name itself.
  absl::Status SendReceive(ConstBuffer in, int send_peer, Buffer out, int receive_peer,
                           int tag = 0);

  // Returns when all ranks have called it.
  absl::Status Barrier();

  // Labels later collectives, for example "chunk 3". If labels differ, ranks disagree, and the
  // error has both labels. Truncated to kMaxLabelBytes. Only between operations.
  void SetLabel(std::string_view label);

  // Makes the pending and all later operations of all ranks fail with ABORTED and `reason`. On any
  // thread; returns at once. Only the first abort or failure counts.
  void Abort(const std::string& reason);

  // OK, or the error that poisoned the communicator.
  absl::Status health() const;

  CommunicatorStats Stats() const;

  // Applies from the next operation on. Only between operations.
  void SetTimeout(absl::Duration timeout);
  absl::Duration timeout() const;

  // A second, independent communicator of the same ranks, for another thread. Collective: all ranks
  // call it with the same name. Ranks that wait in this call notice an abort of this communicator,
  // except when NCCL connects. `messages`: the same on all ranks.
  absl::StatusOr<std::unique_ptr<Communicator>> Duplicate(const std::string& name,
                                                          Messages messages = Messages::kLarge);

  // A communicator of the given ranks, which become 0, 1, ... in that order; they must include this
  // rank. Collective among those ranks only, so disjoint subsets can be made at the same time, such
  // as the rows of a mesh.
  absl::StatusOr<std::unique_ptr<Communicator>> Subset(const std::string& name,
                                                       std::span<const int> ranks);

  // After a failure: a new communicator of the ranks that call this too, in their old order. Waits,
  // at most for the timeout, until every other rank has called it, died, or destroyed its
  // communicator. DEADLINE_EXCEEDED names ranks that did none of these. All survivors get the same
  // group, or an error. Without an earlier failure it makes the others' operations fail (ABORTED).
  // After success this communicator must not be used any more.
  //
  // If a rank dies meanwhile: over shared memory it is left out, or the new group's first operation
  // names it. Over TCP the survivors get an error within the timeout, unless the rank died before
  // it called this. UNIMPLEMENTED with NCCL: shrink the ranks' communicator of host memory, and
  // connect again.
  absl::StatusOr<Survivors> Shrink();

  // The first rank of a host allocates the memory that its ranks share. Until the result is
  // destroyed, `charger` is told of the memory that this rank has allocated for the communicators
  // of one Connect. It is told of later memory before that is allocated. An error of `charger`
  // becomes that of this call, or of the Duplicate, Subset or Shrink on every participating rank.
  // Null: another charger is in charge already. Only the backends "shm" and "hierarchical" share
  // memory.
  absl::StatusOr<std::shared_ptr<void>> ChargeSegments(SegmentCharger charger);

 private:
  friend CommunicatorBackend& BackendOf(Communicator& communicator);  // internal

  absl::StatusOr<std::unique_ptr<Communicator>> MakeSubset(const std::string& name,
                                                           std::span<const int> ranks,
                                                           Messages messages);

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
