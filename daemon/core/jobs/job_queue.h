// Which jobs may have memory now: all ranks of a job are admitted together, or none.
//
//   GATHERING --all ranks came--> QUEUED --it fits--> RUNNING --asked--> YIELDING --gave back--+
//       | too late: undone           ^                   ^                                      |
//       v                            |                   +-------- it fits -------- PREEMPTED <-+
//                                    +-- (a rank died: GATHERING again)
//
// While a job runs, the memory that its ranks asked for is promised to it: no other job gets it.
// Waiting jobs are ordered by priority and time. One level of priority equals `ageing` of waiting,
// so each becomes first. A job behind others gets only memory that they leave, so no job delays
// one before it. Only a job whose ranks replace ranks that died with an arena comes before all of
// them. A job of higher priority makes others yield.
//
// A rank without an arena has nothing to give back, so it is not asked. A job has `yield_time` from
// its admission on to make its arenas, and is not asked to yield meanwhile. After that its promise
// may go to a job of higher priority, and it waits like a job that yielded.
//
// Pure: it is handed time, reads the ledger and the quotas, and returns which sessions to notify.
#ifndef GEMINID_DAEMON_CORE_JOBS_JOB_QUEUE_H_
#define GEMINID_DAEMON_CORE_JOBS_JOB_QUEUE_H_

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/core/accounts/account.h"
#include "daemon/core/accounts/room.h"
#include "daemon/core/basics/ids.h"
#include "daemon/core/basics/time.h"

namespace geminid::core {

enum class JobId : uint64_t {};
constexpr uint64_t Value(JobId id) { return static_cast<uint64_t>(id); }

inline constexpr int32_t kLowestPriority = -100;
inline constexpr int32_t kHighestPriority = 100;

struct JobName {
  std::string tenant;
  std::string job;
  std::string run;  // distinguishes two runs of one name; may be empty
  auto operator<=>(const JobName&) const = default;
};

// One rank's request. ranks, priority, preemptible and may_wait are the same for all of a job.
struct RankRequest {
  int32_t rank = 0;
  uint32_t ranks = 1;  // of the job on this node
  int32_t priority = 0;
  DeviceIndex device{};
  uint64_t device_bytes = 0;
  uint64_t host_bytes = 0;
  bool preemptible = false;  // it gives its arena back when it is asked to
  bool may_wait = true;      // false: refused at once if it does not fit now
};

// The memory of a rank before it asks, if it replaces a rank that died.
struct RankMemory {
  uint64_t host_bytes = 0;
  uint64_t device_bytes = 0;
};

enum class JobState { kGathering, kQueued, kRunning, kYielding, kPreempted };
const char* Name(JobState state);

// The standing of a session's job.
struct JobStatus {
  JobState state = JobState::kGathering;
  uint32_t position = 0;  // among the jobs that wait, from 1; 0: it does not wait
  std::string reason;     // what the job waits for, or lacks; empty: nothing
};

struct JobSnapshot {
  JobId id{};
  JobName name;
  uint32_t ranks = 0;
  std::vector<SessionId> sessions;  // of the ranks that have joined, in order of rank
  int32_t priority = 0;
  bool preemptible = false;
  bool held = false;  // by the operator
  Time since;         // when it began to wait, or to run
  JobStatus standing;
  uint64_t waits_for_device_bytes = 0;  // to be admitted, over all devices; 0: it does not wait
};

// Notifications that are due: sessions asked for their arenas, and sessions no longer asked.
struct JobActions {
  std::vector<SessionId> asked_to_yield;
  std::vector<SessionId> admitted;
};

// Since the daemon's start.
struct JobCounters {
  uint64_t admitted = 0;   // a job that was preempted and goes on counts again
  uint64_t preempted = 0;  // asked for their arenas, or gave them back unasked
  uint64_t undone = 0;     // refused, or not complete in time
};

struct JobQueueOptions {
  Duration gather_time = Duration::Seconds(60);  // for all ranks of a job to join
  Duration ageing = Duration::Seconds(1800);     // waiting that is worth a level of priority
  // How long a job may take to give its device memory back, before others are asked instead. Also
  // how long an admitted job may take to make its arenas, before it may lose its promise.
  Duration yield_time = Duration::Seconds(60);
  uint32_t waiting_per_tenant = 64;  // jobs that were not admitted yet
};

// Not thread-safe. Cost: Join is linear in the jobs; other calls but Decide are linear in the ranks
// of one job. Decide does nothing until a change that it could act on. Then it is linear in the
// jobs, and once more for each job that it asks to yield. The more jobs it looked at, the longer it
// pauses: a full queue makes others wait, but takes little processor time.
class JobQueue {
 public:
  // `ledger` and `quota` must outlive the queue. Their owner reports changes by the calls below.
  JobQueue(const Ledger* ledger, const Quota* quota, JobQueueOptions options);

  // A rank asks for admission. INVALID_ARGUMENT: the ranks of a job disagree. FAILED_PRECONDITION:
  // the session has asked before. RESOURCE_EXHAUSTED: a rank that rejoins a running job does not
  // fit, or its tenant has too many waiting jobs (see IsFull).
  absl::Status Join(SessionId session, const JobName& name, const RankRequest& ask, Time now,
                    const RankMemory& has = {});
  struct RankState {
    SessionId session{};
    JobId job{};
    JobState state = JobState::kGathering;
    bool yielded = false;
    bool held = false;
    Time since;
    bool operator==(const RankState&) const = default;
  };
  // Restores a rank of an earlier daemon with its standing and the number of its job. Without a
  // number the rank joins the oldest job of its name that lacks this rank.
  void Restore(const JobName& name, const RankRequest& ask, const RankState& stood);
  // The standings that have changed since the last call.
  std::vector<RankState> TakeChanges();
  // JobId{}: the session has not joined.
  JobId JobOf(SessionId session) const;
  bool HasJoined(SessionId session) const { return ranks_.contains(session); }
  // Whether the tenant has as many jobs waiting for admission as it may.
  bool IsFull(const std::string& tenant) const;
  // The session ended: its rank leaves the job.
  void Leave(SessionId session, Time now);
  // Memory of the session was charged, or has been given back.
  void Charged(SessionId session, Account account, uint64_t bytes);
  void Returned(SessionId session, Account account, uint64_t bytes);
  // The session gave its arena back, asked or not; its job waits to be admitted again.
  void Yielded(SessionId session, Time now);

  // While drained, the queue admits no job that has not run yet.
  void SetDrained(bool drained);
  bool drained() const { return drained_; }
  // Hold makes the job yield, once all of its ranks have their arenas or have had the time to make
  // them. The job then waits until LetGo. A waiting job with an arena, which replacement ranks have
  // from those that died, is admitted before all others: it yields once all of its ranks have
  // theirs. FAILED_PRECONDITION: the job runs and is not preemptible. NOT_FOUND: there is no such
  // job.
  absl::Status Hold(JobId job);
  absl::Status LetGo(JobId job);
  // Whether the session has joined a job that is held.
  bool IsHeld(SessionId session) const;
  // Whether it has joined a job that is held, or was asked for its device memory.
  bool IsToYield(SessionId session) const;
  void SetOptions(const JobQueueOptions& options);

  // Takes every decision that is due now.
  JobActions Decide(Time now);
  // When to call Decide next, if nothing changes before.
  std::optional<Time> NextDeadline() const;

  // An error says why the job was undone, or that the session has not joined.
  absl::StatusOr<JobStatus> StandingOf(SessionId session) const;
  // In the order in which they came.
  std::vector<JobSnapshot> Jobs() const;
  const JobCounters& counters() const { return counters_; }
  // How many jobs all decisions so far have looked at: a measure of their cost.
  uint64_t looks() const { return pace_.looks; }
  // The bytes that the session may take without touching what others were promised.
  uint64_t AvailableBytes(SessionId session, const std::string& tenant, Account account) const;
  // The same for all sessions of its job together.
  uint64_t AvailableToJob(SessionId session, const std::string& tenant, Account account) const;
  // A view of free memory that honours all promises and guarantees except the session's own.
  Room RoomFor(SessionId session) const { return MakeRoom(session); }

 private:
  struct Rank {
    SessionId session{};
    RankRequest ask;
    uint64_t host_charged = 0;
    uint64_t device_charged = 0;
    bool asked = false;              // to yield
    bool yielded = false;            // since it was admitted, or it had nothing to give back
    std::optional<RankState> told{};  // the last that TakeChanges returned
  };
  using MemoryNeeds = std::map<Account, uint64_t>;
  // One job's contribution to the sums over all jobs.
  struct Summed {
    MemoryNeeds claims;
    bool waits = false;
    bool is_new = false;
  };
  struct Job {
    JobId id{};
    JobName name;
    RankRequest common;  // the fields that all ranks share
    JobState state = JobState::kGathering;
    bool held = false;
    Time since;             // of gathering, waiting or running
    double not_before = 0;  // when it waits again, it comes no earlier than the job it yielded to
    std::map<int32_t, Rank> ranks;
    uint32_t position = 0;
    std::string reason;
    Summed summed;

    bool complete() const { return ranks.size() == common.ranks; }
    bool waits() const { return state == JobState::kQueued || state == JobState::kPreempted; }
    bool is_new() const { return state == JobState::kGathering || state == JobState::kQueued; }
    // The bytes that admission must promise and the job does not hold yet. Not host memory for a
    // preempted job: its host memory stays promised.
    MemoryNeeds Wants() const;
    // The bytes that were promised to the job and not handed out yet, but for the session `except`.
    MemoryNeeds Claims(SessionId except = kNoSession) const;
    MemoryNeeds NeedsOf(bool host, bool device, SessionId except) const;
    // Whether every rank that asked for device memory has its arena.
    bool has_arenas() const;
    bool has_any_arena() const;
    // A text for the operator about arenas not made yet; empty: there are none.
    std::string DescribeMissingArenas() const;
  };
  // `not_before` of a job that yielded to no other job.
  static constexpr double kAtOnce = -1e9;
  // The job with the least turn is next.
  using QueueOrder = std::tuple<bool, double, int32_t, bool, uint64_t>;
  static constexpr size_t kWhen = 1;  // its seconds

  Job* FindJob(const JobName& name, const RankRequest& ask);
  Job* AddJob(const JobName& name, const RankRequest& common, Time since);
  Job* AddJob(JobId id, const JobName& name, const RankRequest& common, Time since);
  Job* JobToRestore(const JobName& name, const RankRequest& ask, const RankState& stood);
  absl::Status Rejoin(Job* job, const Rank& rank);
  Room MakeRoom(SessionId except) const;
  static void Claim(const std::string& tenant, const MemoryNeeds& needs, Room* room);
  // For a running job: its arenas, and the device memory promised to it besides.
  static void FreeDevices(const Job& job, Room* room);
  static void KeepDevices(const Job& job, Room* room);
  static void Unpromise(const Job& job, Room* room);
  // To be called whenever something of a job has changed.
  void Note(Job* job);
  void Sum(Job* job, Summed now);
  void Erase(Job* job);
  // The account that has too little room; none: the job fits.
  static std::optional<Account> Lacks(const Job& job, const Room& room);

  void UndoLate(Time now);
  void UndoImpossible();
  void Undo(const Job& job, const absl::Status& why);
  QueueOrder TurnOf(const Job& job) const;
  std::vector<Job*> InTurn();
  struct Decision;
  void DecideOn(Job* job, Decision* decision, JobActions* actions);
  void ClaimFor(const Job& job, const MemoryNeeds& wants, Decision* decision);
  void Admit(Job* job, Time now, JobActions* actions);
  bool MakeWay(const Job& job, const Room& room, Decision* decision);
  void FindVictims(Decision* decision);
  std::vector<Job*> ChooseVictims(const Job& job, Room supposed, const Decision& decision);
  // The job was asked for its device memory, and has not given it back in time.
  bool IsOverdue(const Job& job, Time now) const;
  // All of its ranks have their arenas; or none has one, although they have had the time.
  bool HasStarted(const Job& job, Time now) const;
  std::optional<Time> DueOf(const Job& job, Time now) const;
  void YieldHeld(Time now);
  void BeginPause(Time now, uint64_t looks_before);
  void BeginYield(Job* job, double not_before, Time now);
  void EndYield(Job* job, Time now);
  void AskYielding(JobActions* actions);
  std::string WhyNot(const Job& job, Account account, const Room& room) const;
  absl::Status NoRoom(const Job& job, Account account, const Room& room) const;
  Time Requeued(const Job& job, Time now) const;

  const Ledger* const ledger_;
  const Quota* const quota_;
  JobQueueOptions options_;
  bool drained_ = false;
  // When to decide next.
  struct Pace {
    bool changed = false;      // something has, and a decision could act on it
    bool room_shrank = false;  // for jobs that wait: others may have to be asked
    Time decided_at;
    Time quiet_until;         // no decision before this, whatever has changed
    std::optional<Time> due;  // when to decide if nothing changes
    uint64_t looks = 0;
  } pace_;
  uint64_t last_job_ = 0;
  JobCounters counters_;
  std::map<JobId, Job> jobs_;
  std::map<SessionId, JobId> ranks_;
  std::map<SessionId, absl::Status> undone_;
  // Sums over all jobs: bytes promised and not handed out, jobs that wait for room, and each
  // tenant's jobs that were not admitted yet. The maps have no zeros.
  TenantBytes claims_;
  uint64_t waiting_ = 0;
  std::map<std::string, uint32_t> new_jobs_;
  std::set<JobId> untold_;  // see TakeChanges
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_JOBS_JOB_QUEUE_H_
