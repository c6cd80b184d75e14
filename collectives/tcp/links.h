// The connections of a group, and the state of its failure.
#ifndef GEMINID_COLLECTIVES_TCP_LINKS_H_
#define GEMINID_COLLECTIVES_TCP_LINKS_H_

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/deadline.h"
#include "base/unique_fd.h"
#include "collectives/tcp/exchange.h"
#include "collectives/tcp/member.h"

namespace geminid::collectives {

// One thread at a time may exchange. Abort() and the listener's functions may run on others.
class TcpLinks final : public GroupListener {
 public:
  // Called from time to time while this rank waits for others; its error ends the wait.
  using WaitCheck = std::function<absl::Status()>;
  struct Options {
    std::shared_ptr<Member> member{};
    std::string group{};             // unique in the job; the same on all members
    std::vector<int> world_ranks{};  // by rank of the group
    int rank = 0;                    // in the group
    absl::Duration connect_timeout;
    WaitCheck look{};  // only while it connects; may be empty
  };
  // Blocks until every member has connected to every other.
  static absl::StatusOr<std::unique_ptr<TcpLinks>> Connect(Options options);
  ~TcpLinks() override;

  // Returns when all bytes are sent and received. `meanwhile` runs during that; its error ends it.
  absl::Status Run(const ExchangeMessages& messages, absl::Duration timeout,
                   const std::function<absl::Status()>& meanwhile = nullptr);
  // Returns when all ranks have called it.
  absl::Status Meet(const Operation& operation, absl::Duration timeout);

  // Makes `status` this rank's failure at once, and the group's if the group has none yet.
  void Abort(const absl::Status& status);
  absl::Status failure() const;
  // Makes `status` the group's failure, unless it has one already. Returns the group's failure.
  absl::Status Fail(const absl::Status& status);
  // Whether a rank of the group has left it in good order, or is known to be dead.
  bool IsGone(int rank) const;
  // `watcher` gets the group's failure on any thread, at once if there is one. It must return soon
  // and not call this object. When this returns, the earlier watcher is never called again.
  void Watch(std::function<void(const absl::Status&)> watcher);

  const Options& options() const { return options_; }

 private:
  explicit TcpLinks(Options options);
  int size() const { return static_cast<int>(options_.world_ranks.size()); }
  // Connects to every lower rank, at its place.
  absl::Status ConnectPeers(const WaitCheck& look);
  absl::StatusOr<base::UniqueFd> ConnectTo(int peer, const WaitCheck& look,
                                           const base::Deadline& deadline) const;
  absl::Status AwaitPeers(const WaitCheck& look, const base::Deadline& deadline);
  // OK: continue to wait for others.
  absl::Status CheckWait(const WaitCheck& look) const;
  std::string purpose() const;
  absl::Status OfThisRank(const absl::Status& status) const;  // with this rank named in its message
  absl::Status RunBeside(Exchange& exchange, const base::Deadline& deadline,
                         const std::function<absl::Status()>& meanwhile);
  absl::Status Complete(Exchange& exchange, const ExchangeMessages& messages,
                        const base::Deadline& deadline, absl::Duration timeout);
  absl::Status AwaitVerdict(int peer);
  void Record(const absl::Status& status);  // needs mutex_

  void OnFailure(const absl::Status& status) override;
  void OnDeath(const RankDeath& death) override;
  void OnLeave(int world_rank) override;

  const Options options_;
  std::vector<base::UniqueFd> sockets_;  // by rank; this rank's own entry is empty
  base::UniqueFd wake_;                  // an eventfd that ends waits

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status failure_;
  std::function<void(const absl::Status&)> watcher_;
  std::set<int> left_;  // ranks of the group
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_LINKS_H_
