#include "collectives/tcp/coordinator_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "base/start_thread.h"
#include "base/status_macros.h"
#include "collectives/tcp/socket.h"

namespace geminid::collectives {

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(
    base::UniqueFd listener, int world_size, std::string job, absl::Duration silence) {
  base::UniqueFd stop(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.valid()) return absl::ErrnoToStatus(errno, "eventfd");
  std::unique_ptr<CoordinatorServer> server(new CoordinatorServer(
      std::move(listener), std::move(stop), world_size, std::move(job), silence));
  GEMINID_ASSIGN_OR_RETURN(server->thread_,
                           base::StartThread([raw = server.get()] { raw->Run(); }));
  return server;
}

CoordinatorServer::CoordinatorServer(base::UniqueFd listener, base::UniqueFd stop, int world_size,
                                     std::string job, absl::Duration silence)
    : listener_(std::move(listener)),
      stop_(std::move(stop)),
      silence_(silence),
      coordinator_(world_size, std::move(job)),
      heartbeats_(silence, std::chrono::steady_clock::now()) {}

CoordinatorServer::~CoordinatorServer() {
  (void)::eventfd_write(stop_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

std::vector<int> CoordinatorServer::missing_ranks() const {
  std::lock_guard lock(mutex_);
  return coordinator_.missing_ranks();
}

std::vector<Coordinator::Outgoing> CoordinatorServer::Ask(Question question) {
  std::lock_guard lock(mutex_);
  return question(coordinator_);
}

void CoordinatorServer::Run() {
  for (;;) {
    std::vector<pollfd> polls = {{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                                 {.fd = listener_.get(), .events = POLLIN, .revents = 0}};
    std::vector<int> ids;
    for (const auto& [id, connection] : connections_) {
      const short events = connection.unsent.empty() ? POLLIN : POLLIN | POLLOUT;
      polls.push_back({.fd = connection.socket.get(), .events = events, .revents = 0});
      ids.push_back(id);
    }
    const int wait = heartbeats_.MillisecondsLeft(std::chrono::steady_clock::now());
    if (::poll(polls.data(), polls.size(), wait) < 0 && errno != EINTR) return;
    if (polls[0].revents != 0) return SayGoodbye();
    if (heartbeats_.Turn(std::chrono::steady_clock::now())) SendBeats();
    for (size_t i = 0; i < ids.size(); ++i) {
      if ((polls[2 + i].revents & POLLOUT) != 0) Flush(ids[i]);
      if ((polls[2 + i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) Receive(ids[i]);
    }
    RecordSilentDeaths();
    DropMarked();
    if (polls[1].revents != 0) Accept();
  }
}

void CoordinatorServer::Accept() {
  base::UniqueFd socket = AcceptTcp(listener_.get());
  if (!socket.valid() || connections_.size() >= kMaxConnections) return;
  const std::string address = PeerAddress(socket.get());
  connections_[next_id_++] = {.socket = std::move(socket), .address = address};
}

void CoordinatorServer::SendBeats() {
  for (auto& [id, connection] : connections_) {
    // Unsent bytes serve as a beat.
    if (connection.closing || !connection.unsent.empty()) continue;
    if (HasUnderway(connection.socket.get())) continue;
    connection.unsent = Encode({.type = FrameType::kBeat});
    Flush(id);
  }
}

void CoordinatorServer::RecordSilentDeaths() {
  for (const int id : heartbeats_.Silent()) {
    heartbeats_.Forget(id);
    Deliver(Ask([&](Coordinator& coordinator) {
      return coordinator.OnSilent(id, silence_, connections_[id].address);
    }));
    Drop(id);
  }
}

void CoordinatorServer::SayGoodbye() {
  std::lock_guard lock(mutex_);
  for (const Coordinator::Outgoing& farewell : coordinator_.OnShutdown()) {
    // One attempt each: ranks that are still there read, and nothing may delay this thread's end.
    Connection& connection = connections_[farewell.connection];
    connection.unsent += Encode(farewell.frame);
    (void)::send(connection.socket.get(), connection.unsent.data(), connection.unsent.size(),
                 MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

void CoordinatorServer::Receive(int id) {
  Connection& connection = connections_[id];
  char bytes[16 * 1024];
  const ssize_t n = ::recv(connection.socket.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return Drop(id);
  heartbeats_.Heard(id);
  if (connection.closing) return;  // refused: its frames no longer count
  connection.reader.Append(bytes, static_cast<size_t>(n));
  for (;;) {
    auto frame = connection.reader.Next();
    if (!frame.ok()) return Drop(id);
    if (!frame->has_value()) return;
    Deliver(Ask([&](Coordinator& coordinator) { return coordinator.OnFrame(id, **frame); }));
  }
}

void CoordinatorServer::Deliver(const std::vector<Coordinator::Outgoing>& messages) {
  for (const Coordinator::Outgoing& message : messages) {
    const auto found = connections_.find(message.connection);
    if (found == connections_.end()) continue;
    Connection& connection = found->second;
    if (connection.closing) continue;
    connection.unsent += Encode(message.frame);
    connection.closing = message.close_after;
    if (connection.unsent.size() > kMaxBacklogBytes) {
      Drop(message.connection);
    } else {
      Flush(message.connection);
    }
  }
}

void CoordinatorServer::Flush(int id) {
  Connection& connection = connections_[id];
  while (!connection.unsent.empty()) {
    const ssize_t n = ::send(connection.socket.get(), connection.unsent.data(),
                             connection.unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      // The peer has gone. Its earlier frames, perhaps a goodbye, are still to be read.
      connection.unsent.clear();
      break;
    }
    connection.unsent.erase(0, static_cast<size_t>(n));
  }
  if (connection.closing) Drop(id);
}

// Deferred: callers hold references, and news of it goes to connections that are being iterated.
void CoordinatorServer::Drop(int id) { doomed_.push_back(id); }

void CoordinatorServer::DropMarked() {
  while (!doomed_.empty()) {
    const int id = doomed_.back();
    doomed_.pop_back();
    heartbeats_.Forget(id);
    if (connections_.erase(id) == 0) continue;
    Deliver(Ask([&](Coordinator& coordinator) { return coordinator.OnClosed(id); }));
  }
}

}  // namespace geminid::collectives
