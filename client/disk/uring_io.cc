#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/disk/file_io.h"

#if GEMINID_HAS_URING
#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <system_error>
#include <thread>

#include "client/src/fork_guard.h"
#endif

namespace geminid::disk {

#if GEMINID_HAS_URING
namespace {

constexpr int kMostTries = 1000;  // while the kernel lacks memory for a moment
constexpr auto kPause = std::chrono::milliseconds(1);
constexpr uint64_t kMostBufferBytes = uint64_t{1} << 30;  // that the kernel can register at once

class UringIo final : public FileIo {
 public:
  explicit UringIo(uint32_t depth) : depth_(depth) {}

  ~UringIo() override {
    if (!made_) return;
    // The kernel reads and writes the requests' data until then.
    while (under_way_ > 0) {
      io_uring_cqe* first = nullptr;
      // Errors do not matter: the data may be freed once the last result is there.
      if (io_uring_wait_cqe(&ring_, &first) != 0) std::this_thread::sleep_for(kPause);
      TakeResults(nullptr);
    }
    guard_.reset();
    // Without this, the ring's end would release locked memory only some time later.
    if (!registered_.empty()) io_uring_unregister_buffers(&ring_);
    io_uring_queue_exit(&ring_);
  }

  // Returns an errno, or 0.
  int Make() {
    const int error = -io_uring_queue_init(depth_, &ring_, 0);
    made_ = error == 0;
    if (!made_) return error;
    guard_.emplace(ring_.ring_fd);
    // A child with these mappings would keep the buffers of a dead parent registered.
    io_uring_ring_dontfork(&ring_);
    // Before Linux 5.11 a timeout is a request of its own, with a result among the others.
    return (ring_.features & IORING_FEAT_EXT_ARG) != 0 ? 0 : ENOSYS;
  }

  absl::Status Start(std::span<const IoRequest> requests) override {
    for (const IoRequest& request : requests) {
      io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
      if (entry == nullptr) {
        return absl::InternalError(absl::StrCat("more than ", depth_, " requests to one ring"));
      }
      Describe(request, entry);
    }
    return Submit(requests.size());
  }

  absl::StatusOr<std::vector<IoResult>> Wait(const base::Deadline& deadline) override {
    std::vector<IoResult> results;
    for (;;) {
      TakeResults(&results);
      if (!results.empty()) return results;
      const auto left = deadline.Left();
      __kernel_timespec until = {};
      until.tv_sec = std::chrono::floor<std::chrono::seconds>(left).count();
      until.tv_nsec = (left % std::chrono::seconds(1)).count();
      io_uring_cqe* first = nullptr;
      const int error = -io_uring_wait_cqe_timeout(&ring_, &first, &until);
      if (error == ETIME) return absl::DeadlineExceededError("the ring has no result");
      if (error != 0 && error != EINTR && error != EAGAIN) {
        return absl::InternalError(
            absl::StrCat("io_uring_wait_cqe: ", std::generic_category().message(error)));
      }
    }
  }

  absl::Status UseBuffers(std::span<const std::span<std::byte>> buffers) override {
    std::vector<iovec> registered;
    for (std::span<std::byte> buffer : buffers) {
      while (!buffer.empty()) {
        const size_t bytes = std::min<size_t>(buffer.size(), kMostBufferBytes);
        registered.push_back({.iov_base = buffer.data(), .iov_len = bytes});
        buffer = buffer.subspan(bytes);
      }
    }
    const int error = -io_uring_register_buffers(&ring_, registered.data(),
                                                 static_cast<unsigned>(registered.size()));
    if (error == 0) {
      registered_ = std::move(registered);
      return absl::OkStatus();
    }
    unregistered_ =
        error == ENOMEM
            ? "buffers are not registered: raise the limit of locked memory (ulimit -l)"
            : absl::StrCat("buffers are not registered: ", std::generic_category().message(error));
    return absl::UnavailableError(unregistered_);
  }

  uint32_t depth() const override { return depth_; }
  std::string how() const override {
    return unregistered_.empty() ? "io_uring" : absl::StrCat("io_uring; ", unregistered_);
  }

 private:
  // The index of the registered buffer that has all of the data; -1: there is none.
  int BufferOf(const IoRequest& request) const {
    for (size_t i = 0; i < registered_.size(); ++i) {
      const auto* const begin = static_cast<const std::byte*>(registered_[i].iov_base);
      if (request.data >= begin && request.data + request.bytes <= begin + registered_[i].iov_len) {
        return static_cast<int>(i);
      }
    }
    return -1;
  }

  void Describe(const IoRequest& request, io_uring_sqe* entry) const {
    const int buffer = request.kind == IoKind::kSync ? -1 : BufferOf(request);
    switch (request.kind) {
      case IoKind::kRead:
        if (buffer < 0) {
          io_uring_prep_read(entry, request.fd, request.data, request.bytes, request.offset);
        } else {
          io_uring_prep_read_fixed(entry, request.fd, request.data, request.bytes, request.offset,
                                   buffer);
        }
        break;
      case IoKind::kWrite:
        if (buffer < 0) {
          io_uring_prep_write(entry, request.fd, request.data, request.bytes, request.offset);
        } else {
          io_uring_prep_write_fixed(entry, request.fd, request.data, request.bytes, request.offset,
                                    buffer);
        }
        break;
      case IoKind::kSync:
        io_uring_prep_fsync(entry, request.fd, IORING_FSYNC_DATASYNC);
        break;
    }
    io_uring_sqe_set_data64(entry, request.tag);
  }

  absl::Status Submit(size_t requests) {
    int tries = 0;
    for (size_t submitted = 0; submitted < requests;) {
      const int result = io_uring_submit(&ring_);
      if (result > 0) {
        submitted += static_cast<size_t>(result);
        under_way_ += static_cast<uint64_t>(result);
        tries = 0;
        continue;
      }
      const bool passes = result == 0 || result == -EINTR || result == -EAGAIN || result == -EBUSY;
      if (!passes || ++tries == kMostTries) {
        return absl::InternalError(
            absl::StrCat("io_uring_submit: ", std::generic_category().message(-result)));
      }
      std::this_thread::sleep_for(kPause);
    }
    return absl::OkStatus();
  }

  // `results` null: discards them.
  void TakeResults(std::vector<IoResult>* results) {
    unsigned head = 0;
    unsigned taken = 0;
    io_uring_cqe* entry = nullptr;
    io_uring_for_each_cqe(&ring_, head, entry) {
      ++taken;
      if (results != nullptr) {
        results->push_back({.tag = io_uring_cqe_get_data64(entry), .result = entry->res});
      }
    }
    io_uring_cq_advance(&ring_, taken);
    under_way_ -= taken;
  }

  const uint32_t depth_;
  bool made_ = false;
  io_uring ring_ = {};
  std::optional<ForkGuard> guard_;
  uint64_t under_way_ = 0;
  std::vector<iovec> registered_;
  std::string unregistered_;  // why buffers are not registered although they should be
};

}  // namespace

absl::StatusOr<std::unique_ptr<FileIo>> MakeUringIo(uint32_t depth) {
  auto made = std::make_unique<UringIo>(depth);
  const int error = made->Make();
  if (error == 0) return made;
  const char* const why = error == EPERM || error == ENOSYS ? "is not permitted here" : "failed";
  return absl::UnavailableError(
      absl::StrCat("io_uring ", why, " (", std::generic_category().message(error), ")"));
}
#else
absl::StatusOr<std::unique_ptr<FileIo>> MakeUringIo(uint32_t /*depth*/) {
  return absl::UnavailableError("this build has no io_uring (liburing)");
}
#endif

}  // namespace geminid::disk
