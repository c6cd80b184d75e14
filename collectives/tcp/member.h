// A rank's connection to the coordinator: the addresses of the other ranks, and news about them.
#ifndef GEMINID_COLLECTIVES_TCP_MEMBER_H_
#define GEMINID_COLLECTIVES_TCP_MEMBER_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/deadline.h"
#include "base/unique_fd.h"
#include "collectives/failure.h"
#include "collectives/tcp/coordinator_line.h"
#include "collectives/tcp/coordinator_server.h"
#include "collectives/tcp/frame.h"
#include "collectives/tcp/group_events.h"
#include "collectives/tcp/peer_listener.h"
#include "collectives/tcp/tcp_communicator.h"

namespace geminid::collectives {

class Member {
 public:
  // Blocks until all ranks of the job have joined. On rank 0 it starts the coordinator.
  static absl::StatusOr<std::shared_ptr<Member>> Join(int rank, int world_size, TcpOptions options);
  // Says goodbye. All listeners of its news must have stopped.
  ~Member();

  const TcpOptions& options() const { return options_; }
  // By rank: the addresses of the job's ranks.
  const std::vector<RankAddress>& rank_addresses() const { return rank_addresses_; }
  // Connections to this rank.
  PeerListener& peer_listener() const { return *peer_listener_; }

  // On any thread. Not OK if some rank cannot come any more: one has died, or rank 0 has left.
  absl::Status health() const;
  // Listeners are called on the member's thread, and in the call that begins to listen.
  GroupEvents& events() { return events_; }

  // Tells all members of the group. All of them, this one included, hear the first report only.
  void ReportFailure(const std::string& group, const absl::Status& status);
  void ReportLeave(const std::string& group);

 private:
  Member(int rank, int world_size, TcpOptions options)
      : rank_(rank), world_size_(world_size), options_(std::move(options)) {}
  absl::Status Connect();
  // Starts the coordinator, and returns its port.
  absl::StatusOr<uint16_t> Serve();
  absl::Status SayHello();
  absl::Status AwaitWelcome(const base::Deadline& deadline);
  void Run();
  bool Receive();
  void Handle(const Frame& frame);
  void Lose(const RankDeath& how);
  void RecordDeath(const RankDeath& death);

  const int rank_;
  const int world_size_;
  TcpOptions options_;
  std::unique_ptr<CoordinatorServer> server_;  // on rank 0
  std::unique_ptr<PeerListener> peer_listener_;
  std::vector<RankAddress> rank_addresses_;
  std::optional<CoordinatorLine> line_;
  base::UniqueFd stop_;            // an eventfd
  bool coordinator_left_ = false;  // used by the thread: it said kBye, or is no longer heard

  mutable std::mutex mutex_;  // guards the next three; not held while listeners run
  std::condition_variable changed_;
  std::string welcome_;  // the addresses, once all ranks have come
  absl::Status broken_;  // why not all ranks can come any more

  GroupEvents events_;
  std::thread thread_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_MEMBER_H_
