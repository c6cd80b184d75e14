// A rank's side of the coordinator: the store, and the news about the other ranks.
#ifndef GEMINID_COLLECTIVES_GLOO_MEMBER_H_
#define GEMINID_COLLECTIVES_GLOO_MEMBER_H_

#include <condition_variable>
#include <functional>
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
#include "collectives/gloo/beats.h"
#include "collectives/gloo/coordinator_server.h"
#include "collectives/gloo/frame.h"
#include "collectives/gloo/succession.h"

namespace geminid::collectives {

// Hears what concerns one group. Called on the member's thread: return soon, do not call Unlisten.
class GroupListener {
 public:
  virtual ~GroupListener() = default;
  virtual void OnFailure(const absl::Status& status) = 0;
  virtual void OnDeath(const Death& death) = 0;  // of any rank of the job
  virtual void OnLeave(int world_rank) = 0;      // from this group
};

struct MemberOptions {
  std::string host{};
  uint16_t port = 0;
  int rank = 0;
  int world_size = 1;
  std::string job{};
  absl::Duration connect_timeout = absl::Minutes(5);
  absl::Duration silence = kDefaultSilence;  // after which rank 0, or to it another one, is dead
  base::UniqueFd listener{};  // rank 0 only: serve on this socket in place of host:port
  std::string
      interface_address;  // numeric address for the data; empty: the one that reaches rank 0
};

class Member {
 public:
  // Blocks until all ranks of the job have joined. Rank 0 starts the coordinator.
  static absl::StatusOr<std::shared_ptr<Member>> Join(MemberOptions options);
  // Says goodbye. Listeners must be gone.
  ~Member();

  int rank() const { return rank_; }
  // The numeric address at which the other ranks can reach this one.
  const std::string& address() const { return address_; }

  absl::Status Set(const std::string& key, const std::string& value);
  // Asked every now and then while something is waited for; its error ends the wait. May be empty.
  using Look = std::function<absl::Status()>;
  // Waits until some rank has set it. UNAVAILABLE when a rank of the job has died meanwhile.
  absl::StatusOr<std::string> Get(const std::string& key, const base::Deadline& deadline,
                                  const Look& look = nullptr);

  // Where the survivors of a group of the job meet; see succession.h.
  Succession& succession() { return *succession_; }
  const std::string& job() const { return job_; }
  absl::Duration silence() const { return silence_; }
  // Any thread.
  bool IsDead(int world_rank) const;

  void Listen(const std::string& group, GroupListener* listener);
  // When it returns the listener is not being called and never will be.
  void Unlisten(const std::string& group);

  // Tells all members of the group; the first report is what all of them hear, this one included.
  void ReportFailure(const std::string& group, const absl::Status& status);
  void ReportLeave(const std::string& group);

 private:
  Member(int rank, int world_size, absl::Duration silence)
      : rank_(rank), world_size_(world_size), silence_(silence) {}
  absl::Status Connect(MemberOptions options);
  absl::Status AwaitWelcome(const base::Deadline& deadline, absl::Duration timeout);
  absl::Status OpenSuccession(const base::Deadline& deadline);
  absl::Status ChooseAddress(const std::string& interface_address, const base::Deadline& deadline);
  absl::Status Send(const Frame& frame);
  void Run();
  void SendBeat();
  bool Receive();
  void Handle(const Frame& frame);
  void Lose(const Death& how);
  void Bury(const Death& death);

  const int rank_;
  const int world_size_;
  const absl::Duration silence_;
  std::string address_;
  std::string job_;
  std::unique_ptr<Succession> succession_;
  std::unique_ptr<CoordinatorServer> server_;  // rank 0
  base::UniqueFd socket_;
  base::UniqueFd stop_;  // an eventfd
  FrameReader reader_;
  bool coordinator_left_ = false;  // of the thread: it said kBye, or we no longer hear it

  std::mutex send_mutex_;
  std::mutex mutex_;  // all below
  std::condition_variable changed_;
  bool welcome_ = false;
  absl::Status broken_;  // why no answer will come any more
  std::map<std::string, std::string> values_;

  mutable std::mutex listeners_mutex_;  // held during calls; taken before mutex_ where both are
  std::map<std::string, GroupListener*> listeners_;
  std::map<std::string, absl::Status> failures_;  // heard so far, for late listeners
  std::map<std::string, std::set<int>> leaves_;   // likewise
  std::map<int, Death> dead_;                     // likewise, by rank
  std::thread thread_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_GLOO_MEMBER_H_
