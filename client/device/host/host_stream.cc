#include "client/device/host/host_stream.h"

#include <cstring>
#include <utility>

#include "base/deadline.h"
#include "base/start_thread.h"
#include "client/os/thread.h"

namespace geminid::device {
namespace {

// As on a GPU's copy engine: the next copy starts while the end of the last one is on the link.
constexpr size_t kCopiesInFlight = 2;

}  // namespace

void HostGate::Open() {
  const std::lock_guard lock(mutex_);
  open_ = true;
  changed_.notify_all();
}

bool HostGate::ready() const {
  const std::lock_guard lock(mutex_);
  return open_;
}

bool HostGate::WaitFor(absl::Duration timeout) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, base::Deadline::In(timeout).time(), [this] { return open_; });
}

HostStream::HostStream(const std::string& name, LinkPacer pacer, const HostArena* arena)
    : arena_(arena), pacer_(pacer) {
  absl::StatusOr<std::thread> thread = base::StartThread([this, name] {
    PrepareThread(name);
    Run();
  });
  status_ = thread.status();
  if (thread.ok()) thread_ = *std::move(thread);
}

HostStream::~HostStream() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void HostStream::Submit(Copy copy) {
  Item item;
  item.copy = std::move(copy);
  item.submitted_at = Clock::now();
  Push(std::move(item));
}

void HostStream::Enqueue(std::function<void()> work) {
  Item item;
  item.work = std::move(work);
  Push(std::move(item));
}

std::shared_ptr<const Event> HostStream::Record() {
  auto event = std::make_shared<HostGate>();
  Enqueue([event] { event->Open(); });
  if (!status_.ok()) event->Open();
  return event;
}

void HostStream::WaitFor(std::shared_ptr<const Event> event) {
  Enqueue([event = std::move(event)] { event->Wait(); });
}

void HostStream::Push(Item item) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(item));
  }
  changed_.notify_one();
}

// A copy overlaps with the end of the copy before; all other work waits until the link is empty.
bool HostStream::MayStart() const {
  if (queue_.empty()) return false;
  return in_flight_.empty() || (queue_.front().IsCopy() && in_flight_.size() < kCopiesInFlight);
}

void HostStream::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (MayStart()) {
      Item item = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      Start(std::move(item));
      lock.lock();
    } else if (!in_flight_.empty()) {
      if (changed_.wait_until(lock, in_flight_.front().arrival, [this] { return MayStart(); })) {
        continue;
      }
      const InFlight arrived = std::move(in_flight_.front());
      in_flight_.pop_front();
      lock.unlock();
      Complete(arrived.copy);
      lock.lock();
    } else if (stopping_) {
      return;
    } else {
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    }
  }
}

void HostStream::Start(Item item) {
  if (!item.IsCopy()) {
    item.work();
    return;
  }
  std::memcpy(arena_->HostAddress(item.copy.destination), arena_->HostAddress(item.copy.source),
              item.copy.bytes);
  const Clock::time_point arrival = pacer_.Arrival(item.submitted_at, item.copy.bytes);
  if (in_flight_.empty() && arrival <= Clock::now()) {
    Complete(item.copy);
  } else {
    in_flight_.push_back({std::move(item.copy), arrival});
  }
}

void HostStream::Complete(const Copy& copy) {
  if (copy.completion != nullptr) {
    copy.completion->store(copy.completion_value, std::memory_order_release);
  }
  if (copy.on_done) copy.on_done(absl::OkStatus());
}

}  // namespace geminid::device
