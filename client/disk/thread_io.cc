// FileIo by threads that call pread, pwrite and fdatasync.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "client/disk/file_io.h"

namespace geminid::disk {
namespace {

constexpr uint32_t kMostThreads = 8;  // enough to keep a fast disk busy with requests of 1 MiB

int64_t Carry(const IoRequest& request) {
  const auto offset = static_cast<off_t>(request.offset);
  const ssize_t result = base::RetryOnEintr([&]() -> ssize_t {
    switch (request.kind) {
      case IoKind::kRead:
        return ::pread(request.fd, request.data, request.bytes, offset);
      case IoKind::kWrite:
        return ::pwrite(request.fd, request.data, request.bytes, offset);
      case IoKind::kSync:
        return ::fdatasync(request.fd);
    }
    return -1;
  });
  return result < 0 ? -errno : result;
}

class ThreadIo final : public FileIo {
 public:
  ThreadIo(uint32_t depth, std::string why) : depth_(depth), why_(std::move(why)) {}

  ~ThreadIo() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  absl::Status MakeThreads() {
    for (uint32_t i = 0; i < std::clamp(depth_, 1u, kMostThreads); ++i) {
      GEMINID_ASSIGN_OR_RETURN(threads_.emplace_back(), base::StartThread([this] { Loop(); }));
    }
    return absl::OkStatus();
  }

  absl::Status Start(std::span<const IoRequest> requests) override {
    {
      const std::lock_guard lock(mutex_);
      waiting_.insert(waiting_.end(), requests.begin(), requests.end());
    }
    wake_.notify_all();
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<IoResult>> Wait(const base::Deadline& deadline) override {
    std::unique_lock lock(mutex_);
    if (!done_.wait_until(lock, deadline.time(), [this] { return !results_.empty(); })) {
      return absl::DeadlineExceededError("no thread has finished a request");
    }
    return std::exchange(results_, {});
  }

  absl::Status UseBuffers(std::span<const std::span<std::byte>> /*buffers*/) override {
    return absl::OkStatus();
  }

  uint32_t depth() const override { return depth_; }
  std::string how() const override {
    return absl::StrCat(threads_.size(), " threads, since ", why_);
  }

 private:
  void Loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const IoRequest request = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      const int64_t result = Carry(request);
      lock.lock();
      results_.push_back({.tag = request.tag, .result = result});
      done_.notify_all();
    }
  }

  const uint32_t depth_;
  const std::string why_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  bool stop_ = false;
  std::deque<IoRequest> waiting_;
  std::vector<IoResult> results_;
  std::vector<std::thread> threads_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FileIo>> MakeThreadIo(uint32_t depth, std::string why) {
  auto made = std::make_unique<ThreadIo>(depth, std::move(why));
  GEMINID_RETURN_IF_ERROR(made->MakeThreads());
  return made;
}

}  // namespace geminid::disk
