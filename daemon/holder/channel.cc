#include "daemon/holder/channel.h"

#include <errno.h>
#include <sys/socket.h>
#include <time.h>

#include <cstring>
#include <span>
#include <utility>

namespace geminid::holder {
namespace {

// The pause while the kernel has too many descriptors in flight, until the other side takes some.
constexpr timespec kPause = {.tv_sec = 0, .tv_nsec = 1'000'000};
constexpr int kMostPauses = 5000;
constexpr size_t kControlFds = 4;  // one is expected; the kernel drops what does not fit

base::UniqueFd TakeFirst(msghdr* header) {
  base::UniqueFd first;
  for (cmsghdr* item = CMSG_FIRSTHDR(header); item != nullptr; item = CMSG_NXTHDR(header, item)) {
    if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int number;
      std::memcpy(&number, CMSG_DATA(item) + i * sizeof(int), sizeof(number));
      base::UniqueFd descriptor(number);
      if (!first.valid()) first = std::move(descriptor);
    }
  }
  return first;
}

}  // namespace

int Send(const base::UniqueFd& socket, const Message& message, int descriptor) {
  Wire wire = Encode(message);
  iovec data = {&wire, sizeof(wire)};
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (descriptor >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(descriptor));
  }
  for (int pauses = 0;;) {
    const ssize_t sent = ::sendmsg(socket.get(), &header, MSG_NOSIGNAL);
    if (sent >= 0) return sent == static_cast<ssize_t>(sizeof(wire)) ? 0 : EIO;
    if (errno == EINTR) continue;
    if (errno != ETOOMANYREFS || ++pauses > kMostPauses) return errno;
    ::nanosleep(&kPause, nullptr);
  }
}

ReceivedMessage Receive(const base::UniqueFd& socket) {
  Wire wire;
  iovec data = {&wire, sizeof(wire)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kControlFds)] = {};
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  ssize_t got;
  do {
    got = ::recvmsg(socket.get(), &header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  ReceivedMessage arrived;
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
    arrived.kind = ReceivedMessage::Kind::kNothing;
  if (got <= 0) return arrived;
  arrived.descriptor = TakeFirst(&header);
  arrived.kind = ReceivedMessage::Kind::kNonsense;
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return arrived;
  const auto bytes = std::as_bytes(std::span(&wire, 1)).first(static_cast<size_t>(got));
  const uint16_t version = VersionOf(bytes).value_or(kVersion);
  if (version != kVersion) {
    arrived.kind = ReceivedMessage::Kind::kOtherVersion;
    arrived.version = version;
    return arrived;
  }
  const std::optional<Message> message = Decode(bytes);
  if (!message.has_value()) return arrived;
  arrived.kind = ReceivedMessage::Kind::kMessage;
  arrived.message = *message;
  return arrived;
}

}  // namespace geminid::holder
