// A client that only uses the wire protocol: it can send what the client library never would.
#ifndef GEMINID_TESTS_DAEMON_ENV_RAW_CLIENT_H_
#define GEMINID_TESTS_DAEMON_ENV_RAW_CLIENT_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mapping.h"
#include "base/unique_fd.h"
#include "proto/shm/attach_messages.h"
#include "proto/shm/session_layout.h"

namespace geminid::testing {

shm::Hello GoodHello();

template <typename Message>
std::span<const std::byte> Bytes(const Message& message) {
  return std::as_bytes(std::span(&message, 1));
}

// One message from an attach connection, which is awaited for some seconds.
struct RawMessage {
  bool end = false;  // the daemon closed the connection, or nothing came in time
  std::vector<std::byte> bytes;
  std::vector<base::UniqueFd> fds;
};
RawMessage Receive(const base::UniqueFd& connection);

// An attached session.
class RawClient {
 public:
  // Connects, sends `hello`, and maps the segments. `socket` is the path of the gRPC socket.
  static absl::StatusOr<std::unique_ptr<RawClient>> Attach(const std::string& socket,
                                                           const shm::Hello& hello = GoodHello());

  const shm::Welcome& welcome() const { return welcome_; }
  const base::UniqueFd& connection() const { return connection_; }
  const std::vector<base::UniqueFd>& fds() const { return fds_; }  // in the order of shm::WelcomeFd
  const shm::StateSegment* state() const { return state_; }
  shm::ClientSegment* client() const {
    return reinterpret_cast<shm::ClientSegment*>(client_map_.data());
  }
  void Wake() const;  // writes the daemon's event

  std::shared_ptr<grpc::Channel> channel() const { return channel_; }
  // Adds the token to the metadata.
  void Authenticate(grpc::ClientContext* context) const;

  ~RawClient();

 private:
  RawClient() = default;

  shm::Welcome welcome_ = {};
  base::UniqueFd connection_;
  std::vector<base::UniqueFd> fds_;
  const shm::StateSegment* state_ = nullptr;
  base::Mapping client_map_;
  std::shared_ptr<grpc::Channel> channel_;
};

// A TCP socket whose last close(2) waits up to `seconds`, because its peer never reads.
base::UniqueFd SocketThatLingers(int seconds);

// A channel of its own: gRPC would share one channel among all users of the same address.
std::shared_ptr<grpc::Channel> NewChannel(const std::string& socket);

}  // namespace geminid::testing

#endif  // GEMINID_TESTS_DAEMON_ENV_RAW_CLIENT_H_
