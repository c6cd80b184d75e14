// Asynchronous collectives: calls return at once, and the caller waits when it needs the result.
//
//   auto ring = collectives::AsyncCommunicator::Start(*ranks->Duplicate("ring"));
//   Pending next = (*ring)->SendReceive(keys, right, next_keys, left);
//   Attend(keys);                          // meanwhile
//   absl::Status status = next.Wait();     // now next_keys are valid
#ifndef GEMINID_ASYNC_COMMUNICATOR_H_
#define GEMINID_ASYNC_COMMUNICATOR_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/buffer.h"
#include "geminid/communicator.h"
#include "geminid/export.h"
#include "geminid/pending.h"
#include "geminid/stream.h"

namespace geminid::collectives {

// An in-order queue for one communicator's operations: each begins after those before it have
// ended. They run on the queue's own thread; a call only takes a lock. Every operation has the
// contract of Communicator's function of its name. Its buffers are in use until its Pending is
// complete. After a failure the communicator is poisoned, so all later operations fail at once; an
// operation with refused arguments fails alone. Any thread may call. Operations run in the order of
// the calls, which must be the same on all ranks.
class GEMINID_EXPORT AsyncCommunicator {
 public:
  // From now on only the queue may use `communicator`. RESOURCE_EXHAUSTED: it gets no thread.
  static absl::StatusOr<std::unique_ptr<AsyncCommunicator>> Start(
      std::unique_ptr<Communicator> communicator);
  // Aborts the group if operations are unfinished, on the other ranks too: call Synchronize before.
  // Afterwards every Pending is complete.
  ~AsyncCommunicator();
  AsyncCommunicator(const AsyncCommunicator&) = delete;
  AsyncCommunicator& operator=(const AsyncCommunicator&) = delete;

  int Rank() const;
  int WorldSize() const;
  CommunicatorStats Stats() const;

  Pending AllGather(ConstBuffer in, Buffer out);
  Pending ReduceScatter(ConstBuffer in, Buffer out, ReduceOp op = ReduceOp::kSum,
                        ReduceOptions options = {});
  Pending AllReduce(ConstBuffer in, Buffer out, ReduceOp op = ReduceOp::kSum,
                    ReduceOptions options = {});
  Pending Broadcast(Buffer inout, int root);
  Pending Reduce(ConstBuffer in, Buffer out, int root, ReduceOp op = ReduceOp::kSum,
                 ReduceOptions options = {});
  Pending Gather(ConstBuffer in, Buffer out, int root);
  Pending AllToAll(ConstBuffer in, Buffer out);
  Pending Send(ConstBuffer in, int peer, int tag = 0);
  Pending Receive(Buffer out, int peer, int tag = 0);
  Pending SendReceive(ConstBuffer in, int send_peer, Buffer out, int receive_peer, int tag = 0);
  Pending Barrier();

  // Runs `operations` as one operation on the queue's thread. Captures live until it has ended.
  Pending Run(std::function<absl::Status(Communicator&)> operations);

  // Later operations begin only after `event`, such as the end of a stream's work that fills their
  // buffers. Until then no other operation begins, and the destructor waits.
  void WaitFor(std::shared_ptr<const Event> event);
  // An event for streams to wait for: all operations so far have ended, with or without an error.
  std::shared_ptr<const Event> Record();

  // Blocks until all operations so far have ended. Returns the first error that poisoned the group.
  absl::Status Synchronize();
  // As Communicator's. Returns at once.
  void Abort(const std::string& reason);
  absl::Status health() const;

 private:
  class Queue;
  explicit AsyncCommunicator(std::unique_ptr<Queue> queue);

  const std::unique_ptr<Queue> queue_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_ASYNC_COMMUNICATOR_H_
