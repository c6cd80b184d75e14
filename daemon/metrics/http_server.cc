#include "daemon/metrics/http_server.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "daemon/os/event.h"
#include "daemon/os/unix_socket.h"

namespace geminid::metrics {
namespace {

constexpr int kBacklog = 32;
constexpr char kEndOfHead[] = "\r\n\r\n";

std::string Serialize(const HttpResponse& response, bool with_body) {
  return absl::StrCat("HTTP/1.1 ", response.code, " ", response.reason,
                      "\r\nContent-Type: ", response.content_type,
                      "\r\nContent-Length: ", response.body.size(), "\r\nConnection: close\r\n\r\n",
                      with_body ? response.body : "");
}

std::string Refusal(int code, const std::string& reason) {
  HttpResponse response;
  response.code = code;
  response.reason = reason;
  response.body = absl::StrCat(reason, "\n");
  return Serialize(response, true);
}

struct AddressInfo {
  addrinfo* list = nullptr;
  ~AddressInfo() {
    if (list != nullptr) ::freeaddrinfo(list);
  }
};

std::string AddressText(const base::UniqueFd& socket) {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(storage);
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&storage), &size);
  char text[INET6_ADDRSTRLEN] = {};
  if (storage.ss_family == AF_INET6) {
    const auto* address = reinterpret_cast<const sockaddr_in6*>(&storage);
    ::inet_ntop(AF_INET6, &address->sin6_addr, text, sizeof(text));
    return absl::StrCat("[", text, "]:", ntohs(address->sin6_port));
  }
  const auto* address = reinterpret_cast<const sockaddr_in*>(&storage);
  ::inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text));
  return absl::StrCat(text, ":", ntohs(address->sin_port));
}

// errno is bind's.
absl::Status BindError(const std::string& where) {
  if (errno == EADDRNOTAVAIL) {
    return absl::FailedPreconditionError(absl::StrCat(
        where,
        " is not an address of this machine; give one that is, 0.0.0.0 for all of them, or off"));
  }
  const absl::Status failed = base::SystemError(errno, "bind", where);
  if (!absl::IsUnavailable(failed)) return failed;
  return absl::UnavailableError(
      absl::StrCat(std::string(failed.message()), "; give another port, 0 for any, or off"));
}

absl::StatusOr<base::UniqueFd> Listen(const std::string& host, uint16_t port) {
  const std::string where = absl::StrCat("the metrics address ", host, ":", port);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  // Accepts only numeric addresses: looking up a name would block and depend on the network.
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  AddressInfo info;
  if (const int error =
          ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &info.list);
      error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": ", ::gai_strerror(error), "; write a numeric address"));
  }
  base::UniqueFd fd(::socket(info.list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return base::SystemError(errno, "socket", where);
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(fd.get(), info.list->ai_addr, info.list->ai_addrlen) != 0) return BindError(where);
  if (::listen(fd.get(), kBacklog) != 0) return base::SystemError(errno, "listen", where);
  return fd;
}

}  // namespace

std::string Respond(const std::string& request, const HttpServer::Handler& handler) {
  const std::string line = request.substr(0, request.find("\r\n"));
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  if (words.size() != 3 || words[1].empty() || words[1][0] != '/' ||
      (words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0")) {
    return Refusal(400, "Bad Request");
  }
  if (words[0] != "GET" && words[0] != "HEAD") return Refusal(405, "Method Not Allowed");
  return Serialize(handler(words[1].substr(0, words[1].find('?'))), words[0] == "GET");
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Create(const std::string& host,
                                                               uint16_t port, os::EventLoop* loop,
                                                               Handler handler) {
  GEMINID_ASSIGN_OR_RETURN(base::UniqueFd listener, Listen(host, port));
  const std::string address = AddressText(listener);
  return Serve(std::move(listener), address, loop, std::move(handler));
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::CreateUnix(const std::string& path,
                                                                   mode_t mode, os::EventLoop* loop,
                                                                   Handler handler) {
  GEMINID_ASSIGN_OR_RETURN(base::UniqueFd listener, os::ListenStream(path, mode, kBacklog));
  return Serve(std::move(listener), absl::StrCat("unix:", path), loop, std::move(handler));
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Serve(base::UniqueFd listener,
                                                              std::string address,
                                                              os::EventLoop* loop,
                                                              Handler handler) {
  const std::string name = absl::StrCat("the metrics address ", address);
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(address), loop, std::move(handler)));
  absl::StatusOr<std::unique_ptr<os::Acceptor>> acceptor = os::Acceptor::Create(
      std::move(listener), name, loop,
      [raw = server.get()](base::UniqueFd fd) { raw->OnConnection(std::move(fd)); });
  if (!acceptor.ok()) return acceptor.status();
  server->acceptor_ = *std::move(acceptor);
  return server;
}

HttpServer::~HttpServer() {
  while (!connections_.empty()) Close(connections_.begin()->first);
}

void HttpServer::OnConnection(base::UniqueFd fd) {
  // With too many connections, the oldest is closed: it has had its chance.
  if (connections_.size() >= kMaxConnections) Close(connections_.begin()->first);
  const uint64_t id = next_connection_++;
  absl::StatusOr<os::EventLoop::WatchId> watch =
      loop_->Watch(fd.get(), EPOLLIN, [this, id](uint32_t) { OnEvent(id); });
  if (!watch.ok()) return;
  Connection& connection = connections_[id];
  connection.fd = std::move(fd);
  connection.watch = *watch;
  connection.deadline = os::MonotonicNanoseconds() + kConnectionNanoseconds;
}

void HttpServer::OnEvent(uint64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection* connection = &found->second;
  const bool open = connection->response.empty() ? Read(connection) : Write(connection);
  if (!open) Close(id);
}

bool HttpServer::Read(Connection* connection) {
  std::array<char, 1024> buffer;
  const ssize_t got = base::RetryOnEintr(
      [&] { return ::recv(connection->fd.get(), buffer.data(), buffer.size(), 0); });
  if (got < 0) return errno == EAGAIN;
  if (got == 0) return false;
  connection->request.append(buffer.data(), static_cast<size_t>(got));
  if (connection->request.find(kEndOfHead) != std::string::npos) {
    connection->response = Respond(connection->request, handler_);
  } else if (connection->request.size() > kMaxRequestBytes) {
    connection->response = Refusal(431, "Request Header Fields Too Large");
  } else {
    return true;
  }
  return Write(connection);
}

bool HttpServer::Write(Connection* connection) {
  while (connection->sent < connection->response.size()) {
    const ssize_t sent = base::RetryOnEintr([&] {
      return ::send(connection->fd.get(), connection->response.data() + connection->sent,
                    connection->response.size() - connection->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    });
    if (sent < 0) {
      return errno == EAGAIN && loop_->Change(connection->watch, EPOLLOUT).ok();
    }
    connection->sent += static_cast<size_t>(sent);
  }
  return false;
}

void HttpServer::Close(uint64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  loop_->Unwatch(found->second.watch);
  connections_.erase(found);
}

void HttpServer::Expire(int64_t now_nanoseconds) {
  acceptor_->Expire(now_nanoseconds);
  while (!connections_.empty() && connections_.begin()->second.deadline <= now_nanoseconds) {
    Close(connections_.begin()->first);
  }
}

std::optional<int64_t> HttpServer::NextDeadline() const {
  std::optional<int64_t> next = acceptor_->NextDeadline();
  if (connections_.empty()) return next;
  const int64_t first = connections_.begin()->second.deadline;
  return std::min(next.value_or(first), first);
}

}  // namespace geminid::metrics
