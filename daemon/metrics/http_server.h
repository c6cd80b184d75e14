// A very small HTTP server for a few pages, on an event loop's thread.
//
// Not prometheus::Exposer: its destructor takes up to two seconds, and a port in use is an
// exception.
#ifndef GEMINID_DAEMON_METRICS_HTTP_SERVER_H_
#define GEMINID_DAEMON_METRICS_HTTP_SERVER_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "daemon/os/acceptor.h"
#include "daemon/os/event_loop.h"

namespace geminid::metrics {

inline constexpr size_t kMaxConnections = 32;
inline constexpr size_t kMaxRequestBytes = 8192;
// From connection to the last byte of the answer.
inline constexpr int64_t kConnectionNanoseconds = 10'000'000'000;

struct HttpResponse {
  int code = 200;
  std::string reason = "OK";
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Answers GET and HEAD with what `handler` says of the path, one request per connection, and
// closes. Everything else is refused. Belongs to the event loop's thread.
class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const std::string& path)>;

  // Listens on a numeric IPv4 or IPv6 address; port 0 takes any free one. UNAVAILABLE when the port
  // is in use.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Create(const std::string& host, uint16_t port,
                                                            os::EventLoop* loop, Handler handler);
  // Listens on a Unix socket at a free path, whose file gets exactly `mode`.
  static absl::StatusOr<std::unique_ptr<HttpServer>> CreateUnix(const std::string& path,
                                                                mode_t mode, os::EventLoop* loop,
                                                                Handler handler);
  ~HttpServer();

  // Where it listens, as "127.0.0.1:9464" or "unix:/run/x.http".
  const std::string& address() const { return address_; }

  // Closes connections that took too long, and accepts again after the descriptors had run out.
  void Expire(int64_t now_nanoseconds);
  std::optional<int64_t> NextDeadline() const;

 private:
  struct Connection {
    base::UniqueFd fd;
    os::EventLoop::WatchId watch = 0;
    int64_t deadline = 0;
    std::string request;
    std::string response;
    size_t sent = 0;
  };

  HttpServer(std::string address, os::EventLoop* loop, Handler handler)
      : address_(std::move(address)), loop_(loop), handler_(std::move(handler)) {}
  static absl::StatusOr<std::unique_ptr<HttpServer>> Serve(base::UniqueFd listener,
                                                           std::string address, os::EventLoop* loop,
                                                           Handler handler);
  void OnConnection(base::UniqueFd fd);
  void OnEvent(uint64_t id);
  bool Read(Connection* connection);  // false: close
  bool Write(Connection* connection);
  void Close(uint64_t id);

  const std::string address_;
  os::EventLoop* const loop_;
  const Handler handler_;
  std::unique_ptr<os::Acceptor> acceptor_;
  uint64_t next_connection_ = 1;
  std::map<uint64_t, Connection> connections_;  // in the order of their deadlines
};

// The answer to a complete request, as bytes. For tests and fuzzing.
std::string Respond(const std::string& request, const HttpServer::Handler& handler);

}  // namespace geminid::metrics

#endif  // GEMINID_DAEMON_METRICS_HTTP_SERVER_H_
