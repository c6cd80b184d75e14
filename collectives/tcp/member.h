// A rank's side of the coordinator: where the other ranks are, and the news about them.
#ifndef GEMINID_COLLECTIVES_TCP_MEMBER_H_
#define GEMINID_COLLECTIVES_TCP_MEMBER_H_

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
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
#include "collectives/tcp/beats.h"
#include "collectives/tcp/coordinator_server.h"
#include "collectives/tcp/frame.h"
#include "collectives/tcp/tcp_communicator.h"

namespace geminid::collectives {

// Hears what concerns one group. Called on the member's thread: return soon, do not call Unlisten.
class GroupListener {
 public:
  virtual ~GroupListener() = default;
  virtual void OnFailure(const absl::Status& status) = 0;
  virtual void OnDeath(const Death& death) = 0;  // of any rank of the job
  virtual void OnLeave(int world_rank) = 0;      // from this group
};

class Member {
 public:
  // Blocks until all ranks of the job have joined. Rank 0 starts the coordinator.
  static absl::StatusOr<std::shared_ptr<Member>> Join(int rank, int world_size, TcpOptions options);
  // Says goodbye. Listeners must be gone.
  ~Member();

  const TcpOptions& options() const { return options_; }
  // Of the ranks of the job, by rank.
  const std::vector<Place>& places() const { return places_; }
  // Who comes to this rank.
  Arrivals& arrivals() const { return *arrivals_; }

  // Any thread. Why not all ranks of the job can come any more: one has died, or rank 0 has left.
  absl::Status health() const;
  bool IsDead(int world_rank) const;

  void Listen(const std::string& group, GroupListener* listener);
  // When it returns the listener is not being called and never will be.
  void Unlisten(const std::string& group);

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
  absl::Status Send(const Frame& frame);
  void Run();
  void SendBeat();
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
  base::UniqueFd socket_;
  base::UniqueFd stop_;  // an eventfd
  FrameReader reader_;
  bool coordinator_left_ = false;  // of the thread: it said kBye, or we no longer hear it

  std::mutex send_mutex_;
  mutable std::mutex mutex_;  // all below
  std::condition_variable changed_;
  std::string welcome_;  // the places, once all are here
  absl::Status broken_;  // why not all can come any more

  mutable std::mutex listeners_mutex_;  // held during calls; taken before mutex_ where both are
  std::map<std::string, GroupListener*> listeners_;
  std::map<std::string, absl::Status> failures_;  // heard so far, for late listeners
  std::map<std::string, std::set<int>> leaves_;   // likewise
  std::map<int, Death> dead_;                     // likewise, by rank
  std::thread thread_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_MEMBER_H_
