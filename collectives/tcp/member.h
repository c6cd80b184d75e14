// A rank's side of the coordinator: where the other ranks are, and the news about them.
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
#include "absl/time/time.h"
#include "base/deadline.h"
#include "base/unique_fd.h"
#include "collectives/failure.h"
#include "collectives/tcp/arrivals.h"
#include "collectives/tcp/coordinator_line.h"
#include "collectives/tcp/coordinator_server.h"
#include "collectives/tcp/frame.h"
#include "collectives/tcp/group_news.h"
#include "collectives/tcp/tcp_communicator.h"

namespace geminid::collectives {

class Member {
 public:
  // Blocks until all ranks of the job have joined. Rank 0 starts the coordinator.
  static absl::StatusOr<std::shared_ptr<Member>> Join(int rank, int world_size, TcpOptions options);
  // Says goodbye. Whoever listens to its news must have stopped.
  ~Member();

  const TcpOptions& options() const { return options_; }
  // Of the ranks of the job, by rank.
  const std::vector<Place>& places() const { return places_; }
  // Who comes to this rank.
  Arrivals& arrivals() const { return *arrivals_; }

  // Any thread. Why not all ranks of the job can come any more: one has died, or rank 0 has left.
  absl::Status health() const;
  // Listeners are called on the member's thread, and when they begin to listen.
  GroupNews& news() { return news_; }

  // Tells all members of the group; the first report is what all of them hear, this one included.
  void ReportFailure(const std::string& group, const absl::Status& status);
  void ReportLeave(const std::string& group);

 private:
  Member(int rank, int world_size, TcpOptions options)
      : rank_(rank), world_size_(world_size), options_(std::move(options)) {}
  absl::Status Connect();
  // The port that rank 0 serves at.
  absl::StatusOr<uint16_t> Serve();
  absl::Status SayHello();
  absl::Status AwaitWelcome(const base::Deadline& deadline);
  void Run();
  bool Receive();
  void Handle(const Frame& frame);
  void Lose(const Death& how);
  void Bury(const Death& death);

  const int rank_;
  const int world_size_;
  TcpOptions options_;
  std::unique_ptr<CoordinatorServer> server_;  // rank 0
  std::unique_ptr<Arrivals> arrivals_;
  std::vector<Place> places_;
  std::optional<CoordinatorLine> line_;
  base::UniqueFd stop_;            // an eventfd
  bool coordinator_left_ = false;  // of the thread: it said kBye, or we no longer hear it

  mutable std::mutex mutex_;  // of the next three; not held while news are told
  std::condition_variable changed_;
  std::string welcome_;  // the places, once all are here
  absl::Status broken_;  // why not all can come any more

  GroupNews news_;
  std::thread thread_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_MEMBER_H_
