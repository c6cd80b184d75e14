#include "geminid/async_communicator.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/start_thread.h"
#include "base/status_macros.h"
#include "collectives/async/pending_state.h"

namespace geminid::collectives {
namespace {

using Operations = std::function<absl::Status(Communicator&)>;

// Runs callbacks on the thread on which the operation ends.
class InPlace final : public Executor {
 public:
  void Run(std::function<void()> call) override { call(); }
};

InPlace& InPlaceExecutor() {
  static InPlace executor;
  return executor;
}

// The end of an operation, as an event for streams.
class EndOf final : public Event {
 public:
  explicit EndOf(Pending operation) : operation_(std::move(operation)) {}
  bool ready() const override { return operation_.ready(); }
  // A failed operation has ended too.
  bool WaitFor(absl::Duration timeout) const override {
    (void)operation_.Wait(timeout);
    return operation_.ready();
  }

 private:
  const Pending operation_;
};

}  // namespace

class AsyncCommunicator::Queue {
 public:
  explicit Queue(std::unique_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  ~Queue() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      if (running_ || !waiting_.empty()) {
        communicator_->Abort(
            "the rank destroyed the group before all of the group's operations were done");
      }
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Start() {
    GEMINID_ASSIGN_OR_RETURN(thread_, base::StartThread([this] { Loop(); }));
    return absl::OkStatus();
  }

  Pending Add(Operations operations) {
    auto state = std::make_shared<Pending::State>(&InPlaceExecutor());
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back({std::move(operations), state});
    }
    changed_.notify_all();
    return Pending(std::move(state));
  }

  Communicator& communicator() const { return *communicator_; }

 private:
  struct Item {
    Operations operations;
    std::shared_ptr<Pending::State> state;
  };

  // Operations that wait when the queue stops fail at once, since the group is aborted. When a
  // Pending completes, its operation no longer runs, because its waiter may then destroy the queue.
  void Loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      Item next = std::move(waiting_.front());
      waiting_.pop_front();
      running_ = true;
      lock.unlock();
      absl::Status status = next.operations(*communicator_);
      next.operations = nullptr;  // its captures are destroyed before the operation completes
      lock.lock();
      running_ = false;
      lock.unlock();
      next.state->Complete(std::move(status));
      lock.lock();
    }
  }

  const std::unique_ptr<Communicator> communicator_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> waiting_;
  bool running_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<AsyncCommunicator>> AsyncCommunicator::Start(
    std::unique_ptr<Communicator> communicator) {
  auto queue = std::make_unique<Queue>(std::move(communicator));
  GEMINID_RETURN_IF_ERROR(queue->Start());
  return std::unique_ptr<AsyncCommunicator>(new AsyncCommunicator(std::move(queue)));
}

AsyncCommunicator::AsyncCommunicator(std::unique_ptr<Queue> queue) : queue_(std::move(queue)) {}
AsyncCommunicator::~AsyncCommunicator() = default;

int AsyncCommunicator::Rank() const { return queue_->communicator().Rank(); }
int AsyncCommunicator::WorldSize() const { return queue_->communicator().WorldSize(); }
CommunicatorStats AsyncCommunicator::Stats() const { return queue_->communicator().Stats(); }
absl::Status AsyncCommunicator::health() const { return queue_->communicator().health(); }
void AsyncCommunicator::Abort(const std::string& reason) { queue_->communicator().Abort(reason); }

Pending AsyncCommunicator::Run(Operations operations) { return queue_->Add(std::move(operations)); }

Pending AsyncCommunicator::AllGather(ConstBuffer in, Buffer out) {
  return Run([=](Communicator& ranks) { return ranks.AllGather(in, out); });
}

Pending AsyncCommunicator::ReduceScatter(ConstBuffer in, Buffer out, ReduceOp op,
                                         ReduceOptions options) {
  return Run([=](Communicator& ranks) { return ranks.ReduceScatter(in, out, op, options); });
}

Pending AsyncCommunicator::AllReduce(ConstBuffer in, Buffer out, ReduceOp op,
                                     ReduceOptions options) {
  return Run([=](Communicator& ranks) { return ranks.AllReduce(in, out, op, options); });
}

Pending AsyncCommunicator::Broadcast(Buffer inout, int root) {
  return Run([=](Communicator& ranks) { return ranks.Broadcast(inout, root); });
}

Pending AsyncCommunicator::Reduce(ConstBuffer in, Buffer out, int root, ReduceOp op,
                                  ReduceOptions options) {
  return Run([=](Communicator& ranks) { return ranks.Reduce(in, out, root, op, options); });
}

Pending AsyncCommunicator::Gather(ConstBuffer in, Buffer out, int root) {
  return Run([=](Communicator& ranks) { return ranks.Gather(in, out, root); });
}

Pending AsyncCommunicator::AllToAll(ConstBuffer in, Buffer out) {
  return Run([=](Communicator& ranks) { return ranks.AllToAll(in, out); });
}

Pending AsyncCommunicator::Send(ConstBuffer in, int peer, int tag) {
  return Run([=](Communicator& ranks) { return ranks.Send(in, peer, tag); });
}

Pending AsyncCommunicator::Receive(Buffer out, int peer, int tag) {
  return Run([=](Communicator& ranks) { return ranks.Receive(out, peer, tag); });
}

Pending AsyncCommunicator::SendReceive(ConstBuffer in, int send_peer, Buffer out, int receive_peer,
                                       int tag) {
  return Run([=](Communicator& ranks) {
    return ranks.SendReceive(in, send_peer, out, receive_peer, tag);
  });
}

Pending AsyncCommunicator::Barrier() {
  return Run([](Communicator& ranks) { return ranks.Barrier(); });
}

void AsyncCommunicator::WaitFor(std::shared_ptr<const Event> event) {
  (void)Run([event = std::move(event)](Communicator&) {
    event->Wait();
    return absl::OkStatus();
  });
}

std::shared_ptr<const Event> AsyncCommunicator::Record() {
  return std::make_shared<EndOf>(Run([](Communicator&) { return absl::OkStatus(); }));
}

absl::Status AsyncCommunicator::Synchronize() {
  return Run([](Communicator& ranks) { return ranks.health(); }).Wait();
}

}  // namespace geminid::collectives
