// Collectives that nobody waits for until they must be done.
//
//   auto ring = collectives::AsyncCommunicator::Start(*ranks->Duplicate("ring"));
//   Pending next = (*ring)->SendReceive(keys, right, next_keys, left);
//   Attend(keys);                          // meanwhile
//   absl::Status status = next.Wait();     // now next_keys are there
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

// An in-order queue of one communicator's operations: each begins when those before it are done.
// They run on a thread of its own, so a call takes a lock and no more. Every operation has the
// contract of Communicator's of its name, and its buffers are in use until its Pending is complete.
// Once one has failed those behind it fail at once, as the communicator is poisoned; one whose
// arguments are refused fails alone. Any thread; what several threads hand over is in the order of
// their calls, which must be the same on all ranks.
class GEMINID_EXPORT AsyncCommunicator {
 public:
  // `communicator` is this one's alone from now on. RESOURCE_EXHAUSTED: no thread may be started.
  static absl::StatusOr<std::unique_ptr<AsyncCommunicator>> Start(
      std::unique_ptr<Communicator> communicator);
  // What is not done then is aborted, and so is what other ranks do in this group: synchronize
  // before. All that was handed over is complete afterwards.
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

  // Operations of one's own as one, on the queue's thread. They may keep what they need alive.
  Pending Run(std::function<absl::Status(Communicator&)> operations);

  // What is handed over from now on begins after `event`, such as the end of the work on a stream
  // that fills its buffers. Until then nothing else begins, nor can this be destroyed.
  void WaitFor(std::shared_ptr<const Event> event);
  // When all that was handed over so far is done, well or badly: for streams to wait for.
  std::shared_ptr<const Event> Record();

  // Blocks until all that was handed over so far is done. The first error that poisoned the group.
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
