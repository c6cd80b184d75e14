// The attach socket: who connects is asked the kernel, says Hello, and gets a session.
#ifndef GEMINID_DAEMON_SERVICE_ATTACH_SERVER_H_
#define GEMINID_DAEMON_SERVICE_ATTACH_SERVER_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "daemon/os/event_loop.h"
#include "daemon/os/unix_socket.h"
#include "daemon/service/hub.h"

namespace geminid::service {

// Connections that have not said Hello yet, and for how long they may take.
inline constexpr size_t kMaxHandshakes = 64;
inline constexpr int64_t kHandshakeNanoseconds = 5'000'000'000;

// Belongs to the event loop's thread. Never waits for a client: one that is slow only keeps its own
// connection waiting, and only for kHandshakeNanoseconds.
class AttachServer {
 public:
  using OnAttached = std::function<void(const SessionPtr&)>;

  // Listens at `path`, which must be free. `loop` and `hub` outlive the server.
  static absl::StatusOr<std::unique_ptr<AttachServer>> Create(const std::string& path, mode_t mode,
                                                              os::EventLoop* loop, Hub* hub,
                                                              OnAttached on_attached);
  ~AttachServer();

  // Closes handshakes that took too long, and accepts again after the descriptors had run out.
  void Expire(int64_t now_nanoseconds);
  // When Expire has something to do next.
  std::optional<int64_t> NextDeadline() const;

 private:
  struct Handshake {
    base::UniqueFd connection;
    os::EventLoop::WatchId watch = 0;
    int64_t deadline = 0;
  };

  AttachServer(base::UniqueFd listener, os::EventLoop* loop, Hub* hub, OnAttached on_attached)
      : listener_(std::move(listener)), loop_(loop), hub_(hub), on_attached_(on_attached) {}
  absl::Status WatchListener();
  void AcceptAll();
  void StartHandshake(base::UniqueFd connection);
  void OnReadable(uint64_t handshake);
  void Finish(base::UniqueFd connection, std::span<const std::byte> hello);

  base::UniqueFd listener_;
  os::EventLoop* const loop_;
  Hub* const hub_;
  const OnAttached on_attached_;
  os::EventLoop::WatchId listener_watch_ = 0;
  int64_t accept_again_at_ = 0;  // 0: accepting
  uint64_t next_handshake_ = 1;
  std::map<uint64_t, Handshake> handshakes_;  // in the order of their deadlines
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ATTACH_SERVER_H_
