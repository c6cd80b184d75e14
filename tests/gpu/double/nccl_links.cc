#include "tests/gpu/double/nccl_links.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

namespace geminid::gpu_double {
namespace {

using gpu::NcclResult;

constexpr int kWaiting = 64;  // connections
constexpr std::chrono::milliseconds kLook{1};

// The rank that connects, and its device.
struct Greeting {
  int rank;
  int device;
};

// The address is in the abstract namespace, so it ends with its process.
socklen_t Address(const std::string& id, int rank, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  const int length = std::snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "%s-%d",
                                   id.c_str(), rank);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
}

bool SendAll(int fd, const std::byte* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = send(fd, data, bytes, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    data += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

bool ReceiveAll(int fd, std::byte* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t received = recv(fd, data, bytes, 0);
    if (received <= 0) return false;
    data += received;
    bytes -= static_cast<size_t>(received);
  }
  return true;
}

void Close(int* fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

}  // namespace

std::shared_ptr<NcclLinks> NcclLinks::Meet(const std::string& id, int rank, int ranks, int device) {
  const std::shared_ptr<NcclLinks> links(new NcclLinks(id, rank, ranks, device));
  std::thread([links] { links->MeetAll(); }).detach();
  return links;
}

NcclLinks::~NcclLinks() {
  for (Link& link : links_) {
    Close(&link.out);
    Close(&link.in);
  }
  Close(&listener_);
}

const char* NcclLinks::last_error() const {
  return state_ == NcclResult::kInvalidUsage ? "Duplicate GPU detected" : "";
}

void NcclLinks::MeetAll() {
  listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address;
  const socklen_t length = Address(id_, rank_, &address);
  NcclResult result = NcclResult::kSuccess;
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(listener_, kWaiting) != 0) {
    result = NcclResult::kSystemError;
  }
  for (int peer = 0; peer < ranks_ && result == NcclResult::kSuccess; ++peer) {
    if (!Dial(peer)) result = NcclResult::kRemoteError;
  }
  for (int come = 0; come < ranks_ && result == NcclResult::kSuccess; ++come) {
    if (!Answer()) result = NcclResult::kRemoteError;
  }
  Close(&listener_);
  NcclResult expected = NcclResult::kInProgress;
  state_.compare_exchange_strong(expected, result);
}

bool NcclLinks::Dial(int peer) {
  sockaddr_un address;
  const socklen_t length = Address(id_, peer, &address);
  while (!aborted_) {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), length) == 0) {
      const std::lock_guard lock(mutex_);
      links_[static_cast<size_t>(peer)].out = fd;
      const Greeting greeting = {rank_, device_};
      return SendAll(fd, reinterpret_cast<const std::byte*>(&greeting), sizeof(greeting));
    }
    close(fd);  // the peer does not listen yet
    std::this_thread::sleep_for(kLook);
  }
  return false;
}

bool NcclLinks::Answer() {
  while (!aborted_) {
    pollfd poll_listener = {.fd = listener_, .events = POLLIN, .revents = 0};
    if (poll(&poll_listener, 1, static_cast<int>(kLook.count())) <= 0) continue;
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    Greeting greeting = {};
    if (fd < 0 || !ReceiveAll(fd, reinterpret_cast<std::byte*>(&greeting), sizeof(greeting))) {
      if (fd >= 0) close(fd);
      return false;
    }
    if (greeting.rank != rank_ && greeting.device == device_) {
      state_ = NcclResult::kInvalidUsage;  // the state stays so
    }
    const std::lock_guard lock(mutex_);
    links_[static_cast<size_t>(greeting.rank)].in = fd;
    return true;
  }
  return false;
}

void NcclLinks::Run(const std::vector<NcclTransfer>& transfers) {
  std::atomic<bool> good = true;
  std::vector<std::thread> threads;
  for (int peer = 0; peer < ranks_; ++peer) {
    for (const auto kind : {NcclTransfer::Kind::kSend, NcclTransfer::Kind::kReceive}) {
      const bool any = std::any_of(transfers.begin(), transfers.end(), [&](const auto& transfer) {
        return transfer.peer == peer && transfer.kind == kind;
      });
      if (!any) continue;
      threads.emplace_back([&, peer, kind] {
        if (!RunInOrder(transfers, kind, peer)) good = false;
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (good || aborted_) return;
  NcclResult expected = NcclResult::kSuccess;
  state_.compare_exchange_strong(expected, NcclResult::kRemoteError);
  AwaitAbort();
}

bool NcclLinks::RunInOrder(const std::vector<NcclTransfer>& transfers, NcclTransfer::Kind kind,
                           int peer) {
  const Link& link = links_[static_cast<size_t>(peer)];
  for (const NcclTransfer& transfer : transfers) {
    if (transfer.peer != peer || transfer.kind != kind) continue;
    const bool done = kind == NcclTransfer::Kind::kSend
                          ? SendAll(link.out, transfer.place, transfer.bytes)
                          : ReceiveAll(link.in, transfer.place, transfer.bytes);
    if (!done) return false;
  }
  return true;
}

void NcclLinks::AwaitAbort() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return aborted_.load(); });
}

void NcclLinks::Abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  for (const Link& link : links_) {
    if (link.out >= 0) shutdown(link.out, SHUT_RDWR);
    if (link.in >= 0) shutdown(link.in, SHUT_RDWR);
  }
  changed_.notify_all();
}

}  // namespace geminid::gpu_double
