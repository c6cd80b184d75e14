// A stream of the host device: one thread that does what is queued, in order.
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

// Events of the host device, too.
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
  // `name`, at most 15 characters, is the thread's. `arena`, which copies go to and from, outlives
  // this.
  HostStream(const std::string& name, LinkPacer pacer, const HostArena* arena);
  ~HostStream() override;

  // RESOURCE_EXHAUSTED: the system gave no thread. Nothing that is queued is done, nor waited for.
  const absl::Status& status() const { return status_; }

  void Submit(Copy copy) override;
  void Enqueue(std::function<void()> work) override;
  std::shared_ptr<const Event> Record() override;
  void WaitFor(std::shared_ptr<const Event> event) override;

 private:
  using Clock = LinkPacer::Clock;

  // Either work, or a copy.
  struct Item {
    std::function<void()> work;
    Copy copy;
    Clock::time_point submitted_at;
    bool IsCopy() const { return work == nullptr; }
  };
  // The bytes are there, but on the modelled link they would still be on their way.
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
  LinkPacer pacer_;  // of the thread
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;          // guarded by mutex_
  bool stopping_ = false;           // guarded by mutex_
  std::deque<InFlight> in_flight_;  // of the thread
  absl::Status status_;
  std::thread thread_;
};

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_HOST_HOST_STREAM_H_
