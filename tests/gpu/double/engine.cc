#include "tests/gpu/double/engine.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "tests/gpu/double/node_file.h"

namespace geminid::gpu_double {
namespace {

using std::chrono::microseconds;

// How often code that waits for a change of the node's file looks at the file.
constexpr microseconds kLook{100};

void WaitWhileHeld(Context* context) {
  const DeviceState& device = ThisNode().device[context->device()];
  while (device.held && !context->failed()) std::this_thread::sleep_for(kLook);
}

}  // namespace

bool& InHostFunction() {
  thread_local bool inside = false;
  return inside;
}

std::shared_ptr<Stream> Stream::Make(Context* context, bool blocking) {
  const std::shared_ptr<Stream> stream(new Stream(context, blocking));
  std::thread([stream] { stream->Run(); }).detach();
  return stream;
}

uint64_t Stream::Enqueue(std::function<void()> operation) {
  const std::lock_guard lock(mutex_);
  operations_.push_back(std::move(operation));
  changed_.notify_all();
  return ++queued_;
}

uint64_t Stream::queued() const {
  const std::lock_guard lock(mutex_);
  return queued_;
}

bool Stream::IsDone(uint64_t operations) const {
  const std::lock_guard lock(mutex_);
  return done_ >= operations;
}

void Stream::Wait(uint64_t operations) const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= operations; });
}

void Stream::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void Stream::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closed_ || !operations_.empty(); });
    if (operations_.empty()) return;
    const std::function<void()> operation = std::move(operations_.front());
    operations_.pop_front();
    lock.unlock();
    WaitWhileHeld(context_);
    if (!context_->failed()) operation();
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

void Context::Fail(CUresult error) {
  CUresult none = CUDA_SUCCESS;
  error_.compare_exchange_strong(none, error);
}

CUresult Context::error() {
  if (ThisNode().device[device_].lost) Fail(CUDA_ERROR_UNKNOWN);
  return error_;
}

std::shared_ptr<Stream> Context::Find(CUstream handle) {
  const std::lock_guard lock(mutex_);
  if (reinterpret_cast<uintptr_t>(handle) <= 1) {  // null, and CU_STREAM_LEGACY
    if (legacy_ == nullptr) legacy_ = Stream::Make(this, true);
    return legacy_;
  }
  for (const std::shared_ptr<Stream>& stream : streams_) {
    if (reinterpret_cast<CUstream>(stream.get()) == handle) return stream;
  }
  return nullptr;
}

std::shared_ptr<Stream> Context::MakeStream(bool blocking) {
  std::shared_ptr<Stream> stream = Stream::Make(this, blocking);
  const std::lock_guard lock(mutex_);
  streams_.push_back(stream);
  return stream;
}

bool Context::Destroy(CUstream handle) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(streams_.begin(), streams_.end(), [&](const auto& stream) {
    return reinterpret_cast<CUstream>(stream.get()) == handle;
  });
  if (found == streams_.end()) return false;
  (*found)->Close();
  streams_.erase(found);
  return true;
}

uint64_t Context::Enqueue(const std::shared_ptr<Stream>& stream, std::function<void()> operation) {
  const std::lock_guard lock(mutex_);
  std::vector<Point> before;
  if (stream == legacy_) {
    for (const std::shared_ptr<Stream>& other : streams_) {
      if (other->blocking()) before.push_back({other, other->queued()});
    }
  } else if (stream->blocking() && legacy_ != nullptr) {
    before.push_back({legacy_, legacy_->queued()});
  }
  if (before.empty()) return stream->Enqueue(std::move(operation));
  return stream->Enqueue([before = std::move(before), operation = std::move(operation)] {
    for (const Point& point : before) point.Wait();
    operation();
  });
}

void Context::Synchronize() {
  std::vector<Point> points;
  {
    const std::lock_guard lock(mutex_);
    for (const std::shared_ptr<Stream>& stream : streams_) {
      points.push_back({stream, stream->queued()});
    }
    if (legacy_ != nullptr) points.push_back({legacy_, legacy_->queued()});
  }
  for (const Point& point : points) point.Wait();
}

}  // namespace geminid::gpu_double
