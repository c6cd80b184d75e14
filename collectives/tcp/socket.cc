#include "collectives/tcp/socket.h"

#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/deadline.h"
#include "base/loopback.h"
#include "base/process_limits.h"
#include "base/status_macros.h"

namespace geminid::collectives {
namespace {

constexpr int kBacklog = 1024;
constexpr int kAttemptMilliseconds = 2000;
constexpr int kBytesWithinAHost = 256 * 1024;  // in flight; the kernel doubles it
constexpr absl::Duration kSendPatience = absl::Seconds(5);

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

absl::StatusOr<Addresses> Resolve(const std::string& host, uint16_t port, int flags) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int rc = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), absl::StrCat(port).c_str(),
                               &hints, &list);
  if (rc != 0) {
    return absl::UnavailableError(
        absl::StrFormat("cannot resolve \"%s\": %s", host, ::gai_strerror(rc)));
  }
  return Addresses(list);
}

// Beats detect a host that vanishes. Connections without heartbeats notice it in about half a
// minute.
void Tune(int socket) {
  const int on = 1, idle_seconds = 10, interval_seconds = 5, probes = 3;
  const unsigned unanswered_milliseconds = 30'000;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  // Retransmits every 0.2 s, not at doubling intervals: a beat must not wait for so long.
  ::setsockopt(socket, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof(on));
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds, sizeof(idle_seconds));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval_seconds, sizeof(interval_seconds));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_milliseconds,
               sizeof(unanswered_milliseconds));
}

absl::StatusOr<base::UniqueFd> ListenOn(const addrinfo& address) {
  base::UniqueFd socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return absl::ErrnoToStatus(errno, "socket");
  const int on = 1, off = 0;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.ai_family == AF_INET6) {
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (::bind(socket.get(), address.ai_addr, address.ai_addrlen) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    return absl::ErrnoToStatus(errno, "bind");
  }
  return socket;
}

// Whether the socket is connected to itself: if no process listens there, the system may give a
// socket the very port that it connects to.
bool IsOwnEnd(int socket) {
  sockaddr_storage own = {}, other = {};
  socklen_t own_length = sizeof(own), other_length = sizeof(other);
  return ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &own_length) == 0 &&
         ::getpeername(socket, reinterpret_cast<sockaddr*>(&other), &other_length) == 0 &&
         own_length == other_length && std::memcmp(&own, &other, own_length) == 0;
}

// One attempt for one address; errno has the reason of a failure.
base::UniqueFd TryConnect(const addrinfo& address, int limit_milliseconds) {
  base::UniqueFd socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return socket;
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return base::UniqueFd();
    pollfd entry{.fd = socket.get(), .events = POLLOUT, .revents = 0};
    int error = ETIMEDOUT;
    socklen_t length = sizeof(error);
    if (::poll(&entry, 1, limit_milliseconds) != 1 ||
        ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) {
      socket.Reset();
      errno = error;
      return socket;
    }
  }
  if (IsOwnEnd(socket.get())) {
    socket.Reset();
    errno = ECONNREFUSED;
    return socket;
  }
  Tune(socket.get());
  return socket;
}

std::string AddressBy(int (*get)(int, sockaddr*, socklen_t*), int socket) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  char text[NI_MAXHOST] = {};
  if (get(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, text, sizeof(text),
                    nullptr, 0, NI_NUMERICHOST) != 0) {
    return "";
  }
  // A dual-stack listener sees IPv4 peers as mapped addresses.
  const std::string numeric(text);
  return absl::StartsWith(numeric, "::ffff:") ? numeric.substr(7) : numeric;
}

}  // namespace

absl::StatusOr<base::UniqueFd> ListenTcp(const std::string& host, uint16_t port) {
  GEMINID_ASSIGN_OR_RETURN(auto addresses,
                           Resolve(base::IsLoopback(host) ? host : "", port, AI_PASSIVE));
  absl::Status last = absl::UnavailableError("no address");
  // IPv6 first: with V6ONLY off, it accepts both.
  for (const int family : {AF_INET6, AF_INET}) {
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
      if (a->ai_family != family) continue;
      auto socket = ListenOn(*a);
      if (socket.ok()) return socket;
      last = socket.status();
    }
  }
  return absl::Status(
      last.code() == absl::StatusCode::kAlreadyExists ? absl::StatusCode::kUnavailable
                                                      : last.code(),
      absl::StrFormat("rank 0 cannot listen on port %d: %s; if the launcher uses MASTER_PORT "
                      "itself, set GEMINID_MASTER_PORT to a free port on all ranks",
                      port, std::string(last.message())));
}

absl::StatusOr<base::UniqueFd> ListenAtAddress(const std::string& address) {
  auto addresses = Resolve(address, 0, AI_PASSIVE | AI_NUMERICHOST);
  if (!addresses.ok()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "interface_address=\"%s\" is not a numeric address, such as 10.0.0.7", address));
  }
  auto socket = ListenOn(**addresses);
  if (socket.ok()) return socket;
  return absl::UnavailableError(absl::StrFormat(
      "cannot listen at interface_address=%s: %s; name an address of this host, or none for "
      "the one that reaches rank 0",
      address, std::string(socket.status().message())));
}

absl::StatusOr<uint16_t> PortOf(int socket) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return absl::ErrnoToStatus(errno, "getsockname");
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  return ntohs(address.ss_family == AF_INET ? v4.sin_port : v6.sin6_port);
}

absl::StatusOr<base::UniqueFd> DialTcp(const std::string& host, uint16_t port,
                                       const base::Deadline& deadline,
                                       const std::function<absl::Status()>& look) {
  constexpr auto kFirstPause = std::chrono::milliseconds(5);
  constexpr auto kLongestPause = std::chrono::milliseconds(200);
  auto pause = kFirstPause;
  for (;;) {
    auto socket = DialTcpOnce(host, port, deadline);  // a name may appear late, too
    if (socket.ok() || absl::IsResourceExhausted(socket.status())) return socket;
    if (look) GEMINID_RETURN_IF_ERROR(look());
    if (deadline.Passed()) return absl::DeadlineExceededError(socket.status().message());
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

absl::StatusOr<base::UniqueFd> DialTcpOnce(const std::string& host, uint16_t port,
                                           const base::Deadline& deadline) {
  GEMINID_ASSIGN_OR_RETURN(auto addresses, Resolve(host, port, 0));
  bool is_mute = false;
  int error = ECONNREFUSED;
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    base::UniqueFd socket = TryConnect(*a, deadline.LeftMilliseconds(kAttemptMilliseconds));
    if (socket.valid()) return socket;
    error = errno;
    is_mute = is_mute || error == ETIMEDOUT || error == EHOSTUNREACH;
  }
  if (is_mute)
    return absl::DeadlineExceededError(absl::StrCat(host, " port ", port, ": no answer"));
  if (error == EMFILE || error == ENFILE) {
    return base::WithLimits(absl::ErrnoToStatus(error, "cannot open a socket"));
  }
  return absl::UnavailableError(
      absl::StrCat(host, " port ", port, ": ", std::generic_category().message(error)));
}

base::UniqueFd AcceptTcp(int listener) {
  base::UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.valid()) Tune(socket.get());
  return socket;
}

std::string LocalAddress(int socket) { return AddressBy(&::getsockname, socket); }

std::string PeerAddress(int socket) { return AddressBy(&::getpeername, socket); }

void TuneForData(int socket) {
  const unsigned for_ever = 0;
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &for_ever, sizeof(for_ever));
  if (LocalAddress(socket) != PeerAddress(socket)) return;
  ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &kBytesWithinAHost, sizeof(kBytesWithinAHost));
}

bool HasUnderway(int socket) {
  int bytes = 0;
  return ::ioctl(socket, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

absl::Status SendAll(int socket, const std::string& bytes) {
  const base::Deadline deadline = base::Deadline::In(kSendPatience);
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n =
        ::send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      sent += static_cast<size_t>(n);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN || deadline.Passed()) {
      return absl::UnavailableError("the other end of the connection is gone or does not read");
    }
    pollfd entry{.fd = socket, .events = POLLOUT, .revents = 0};
    (void)::poll(&entry, 1, deadline.LeftMilliseconds(kAttemptMilliseconds));
  }
  return absl::OkStatus();
}

}  // namespace geminid::collectives
