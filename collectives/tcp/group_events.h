// The events about groups of a job's ranks, and their listeners.
#ifndef GEMINID_COLLECTIVES_TCP_GROUP_EVENTS_H_
#define GEMINID_COLLECTIVES_TCP_GROUP_EVENTS_H_

#include <map>
#include <mutex>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "collectives/failure.h"

namespace geminid::collectives {

// Listens for one group. Called with the events locked: must return soon and not call Unlisten.
class GroupListener {
 public:
  virtual ~GroupListener() = default;
  virtual void OnFailure(const absl::Status& status) = 0;
  virtual void OnDeath(const RankDeath& death) = 0;  // of any rank of the job
  virtual void OnLeave(int world_rank) = 0;      // from this group
};

// Thread-safe. A listener that comes late is told earlier events.
class GroupEvents {
 public:
  void Listen(const std::string& group, GroupListener* listener);
  // When it returns, the listener is not running and is never called again.
  void Unlisten(const std::string& group);

  // Late listeners hear the first failure of a group.
  void Failed(const std::string& group, const absl::Status& status);
  void Left(const std::string& group, int world_rank);
  void Died(const RankDeath& death);
  bool IsDead(int world_rank) const;

 private:
  mutable std::mutex mutex_;  // held while listeners are called
  std::map<std::string, GroupListener*> listeners_;
  std::map<std::string, absl::Status> failures_;
  std::map<std::string, std::set<int>> leaves_;
  std::map<int, RankDeath> dead_;  // by rank
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_GROUP_EVENTS_H_
