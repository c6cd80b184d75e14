// A stream of the host device: one thread that executes the queued work in order.
#ifndef GEMINID_CLIENT_DEVICE_HOST_HOST_STREAM_H_
#define GEMINID_CLIENT_DEVICE_HOST_HOST_STREAM_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "client/device/device.h"
#include "client/device/host/host_arena.h"
#include "client/device/host/link_pacer.h"

namespace geminid::device {

// Also serves as the event of the host device.
class HostGate final : public Gate {
 public:
  void Open() override;
  bool ready() const override;
  bool WaitFor(absl::Duration timeout) const override;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool open_ = false;
};

class HostStream final : public CopyStream {
 public:
  // `name`, at most 15 characters, is that of the thread. `arena`, in which copies are made,
  // outlives this object.
  HostStream(const std::string& name, LinkPacer pacer, const HostArena* arena);
  ~HostStream() override;

  // RESOURCE_EXHAUSTED: the system gave no thread. Then queued work is not run, nor waited for.
  const absl::Status& status() const { return status_; }

  void Submit(Copy copy) override;
  void Enqueue(std::function<void()> work) override;
  std::shared_ptr<const Event> Record() override;
  void WaitFor(std::shared_ptr<const Event> event) override;

 private:
  using Clock = LinkPacer::Clock;

  // Either work or a copy.
  struct Item {
    std::function<void()> work;
    Copy copy;
    Clock::time_point submitted_at;
    bool IsCopy() const { return work == nullptr; }
  };
  // The bytes have been copied, but the modelled link would still be transferring them.
  struct InFlight {
    Copy copy;
    Clock::time_point arrival;
  };

  void Push(Item item);
  void Run();
  bool MayStart() const;
  void Start(Item item);
  static void Complete(const Copy& copy);

  const HostArena* const arena_;
  LinkPacer pacer_;  // used by the thread
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;          // guarded by mutex_
  bool stopping_ = false;           // guarded by mutex_
  std::deque<InFlight> in_flight_;  // used by the thread
  absl::Status status_;
  std::thread thread_;
};

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_HOST_HOST_STREAM_H_
