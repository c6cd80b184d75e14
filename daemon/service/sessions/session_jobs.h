// Operations on whole jobs: their admission, their end, and the operator's requests.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_JOBS_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_JOBS_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/service/heritage/node_record.h"
#include "daemon/service/sessions/session_ends.h"
#include "daemon/service/sessions/session_table.h"
#include "daemon/service/sessions/waker.h"

namespace geminid::service {

struct EndedJob {
  std::vector<shm::SessionId> sessions;  // all of the job
  std::vector<shm::SessionId> closed;    // those that have ended already
  std::set<std::string> runs;            // of those that name their run
  uint64_t bytes = 0;
  Garbage garbage;  // for the caller to Destroy
};

// Thread-safe.
class SessionJobs {
 public:
  // All arguments must outlive it.
  SessionJobs(NodeRecord* node, SessionTable* table, Waker* waker, SessionEnds* ends)
      : node_(node), table_(table), waker_(waker), ends_(ends) {}

  // See core::Engine.
  absl::StatusOr<core::JobStatus> Admit(const SessionPtr& session, const std::string& run,
                                        const core::RankRequest& ask, uint32_t weight);
  // See SessionHub for each.
  void Drain(bool drained);
  absl::StatusOr<uint32_t> Hold(const std::string& tenant, const std::string& job, bool hold);
  // `run`: of the job; empty: all of them.
  absl::StatusOr<EndedJob> End(const std::string& tenant, const std::string& job,
                               const std::string& run, bool now);
  void EndSession(shm::SessionId id);

 private:
  using Locked = SessionTable::Locked;

  NodeRecord* const node_;
  SessionTable* const table_;
  Waker* const waker_;
  SessionEnds* const ends_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_JOBS_H_
