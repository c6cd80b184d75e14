// Which jobs may have memory now: all ranks of a job are admitted together, or none.
//
//   GATHERING --all ranks came--> QUEUED --it fits--> RUNNING --asked--> YIELDING --gave back--+
//       | too late: undone           ^                   ^                                      |
//       v                            |                   +-------- it fits -------- PREEMPTED <-+
//                                    +-- (a rank died: GATHERING again)
//
// What a rank asks for is promised to it while its job runs: nobody else gets it. Jobs that wait
// are ordered by priority and time: one level of priority is worth `ageing` of waiting, so that
// whoever waits comes to be first. A job that is not first is admitted only into what those before
// it leave, so nobody is delayed by one behind. A job of higher priority has others yield.
//
// A rank without an arena has nothing to give back, so it is not asked. A job has `yield_time` from
// its admission on to make its arenas, and is left alone. After that its promise goes to a job of
// higher priority, and it waits like one that yielded.
//
// Pure: it is handed time, reads the books, and returns what to tell whom.
#ifndef GEMINID_DAEMON_CORE_JOBS_JOB_QUEUE_H_
#define GEMINID_DAEMON_CORE_JOBS_JOB_QUEUE_H_

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
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
  std::string run;  // keeps two runs of one name apart; may be empty
  auto operator<=>(const JobName&) const = default;
};

// What one rank asks for. Ranks, priority, preemptible and may_wait are the same for all of a job.
struct RankAsk {
  int32_t rank = 0;
  uint32_t ranks = 1;  // of the job on this node
  int32_t priority = 0;
  DeviceIndex device{};
  uint64_t device_bytes = 0;
  uint64_t host_bytes = 0;
  bool preemptible = false;  // it gives its arena back when it is asked to
  bool may_wait = true;      // false: refused at once where it does not fit now
};

// What was handed out to a rank before it asks, as a successor of one that died.
struct RankHas {
  uint64_t host_bytes = 0;
  uint64_t device_bytes = 0;
};

enum class JobState { kGathering, kQueued, kRunning, kYielding, kPreempted };
const char* Name(JobState state);

// How a session's job stands.
struct JobStanding {
  JobState state = JobState::kGathering;
  uint32_t position = 0;  // among those that wait, from 1; 0: it does not
  std::string reason;     // what it waits for, or has not got yet; empty: nothing
};

struct JobSnapshot {
  JobId id{};
  JobName name;
  uint32_t ranks = 0;
  std::vector<SessionId> sessions;  // of the ranks that are there, in order
  int32_t priority = 0;
  bool preemptible = false;
  bool held = false;  // by the operator
  Time since;         // it waits, or runs
  JobStanding standing;
  uint64_t waits_for_device_bytes = 0;  // of all devices, to be admitted; 0: it does not wait
};

// What has become due. The sessions are asked, or need no longer give, their arenas.
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
  Duration gather_time = Duration::Seconds(60);  // for all ranks of a job to come
  Duration ageing = Duration::Seconds(1800);     // waiting that is worth a level of priority
  // For a job to give its device memory back; then others are asked instead. And for one that was
  // admitted to make its arenas; then it may lose what it was promised.
  Duration yield_time = Duration::Seconds(60);
  uint32_t waiting_per_tenant = 64;  // jobs that were not admitted yet
};

// Not thread-safe. Cost: what is not Decide is linear in the ranks of one job, and Join in the
// jobs. Decide does nothing until something has changed that it could act on; then it is linear in
// the jobs, and in the jobs once more for each one that is asked to yield. The more jobs it looked
// at, the later it looks again: whoever fills the queue makes others wait, but takes no processor.
class JobQueue {
 public:
  // The books outlive the queue; whoever changes them says so.
  JobQueue(const Ledger* ledger, const Quota* quota, JobQueueOptions options);

  // A rank asks. INVALID_ARGUMENT where the ranks of a job disagree; FAILED_PRECONDITION for a
  // session that has asked before; RESOURCE_EXHAUSTED where a rank that comes again finds no room,
  // or too many jobs of its tenant wait already (see IsFull).
  absl::Status Join(SessionId session, const JobName& name, const RankAsk& ask, Time now,
                    const RankHas& has = {});
  struct Standing {
    SessionId session{};
    JobId job{};
    JobState state = JobState::kGathering;
    bool yielded = false;
    bool held = false;
    Time since;
    bool operator==(const Standing&) const = default;
  };
  // A rank that an earlier daemon knew, as it stood then. Its job has the number that it had.
  // Without one the rank goes to the oldest job of its name that it is missing from.
  void Restore(const JobName& name, const RankAsk& ask, const Standing& stood);
  // Of ranks whose standing has changed since the last call.
  std::vector<Standing> TakeChanges();
  // JobId{}: it has not joined.
  JobId JobOf(SessionId session) const;
  bool HasJoined(SessionId session) const { return ranks_.contains(session); }
  // As many jobs of the tenant wait to be admitted as may.
  bool IsFull(const std::string& tenant) const;
  // Its session ended.
  void Leave(SessionId session, Time now);
  // Memory of the session was charged, or has been given back.
  void Charged(SessionId session, Account account, uint64_t bytes);
  void Returned(SessionId session, Account account, uint64_t bytes);
  // The session gave its arena back, asked or not, and waits for it to be admitted again.
  void Yielded(SessionId session, Time now);

  // No job that has not run yet is admitted any more.
  void SetDrained(bool drained);
  bool drained() const { return drained_; }
  // It yields, once all of its ranks have their arenas or have had the time to make them, and waits
  // until it is let go.
  // FAILED_PRECONDITION where its ranks cannot.
  absl::Status Hold(JobId job);
  absl::Status LetGo(JobId job);
  void SetOptions(const JobQueueOptions& options);

  // Everything that may be decided now.
  JobActions Decide(Time now);
  // When there is something to decide that nobody tells of.
  std::optional<Time> NextDeadline() const;

  // An error: the job is undone, and why; or the session has not joined.
  absl::StatusOr<JobStanding> StandingOf(SessionId session) const;
  // In the order in which they came.
  std::vector<JobSnapshot> Jobs() const;
  const JobCounters& counters() const { return counters_; }
  // How many jobs were looked at in all decisions so far: what they cost.
  uint64_t looks() const { return pace_.looks; }
  // What the session may take beyond what is promised to others.
  uint64_t AvailableBytes(SessionId session, const std::string& tenant, Account account) const;
  // The same for all sessions of its job together.
  uint64_t AvailableToJob(SessionId session, const std::string& tenant, Account account) const;
  // Whether others were promised or guaranteed some of what is free.
  Room RoomFor(SessionId session) const { return MakeRoom(session); }

 private:
  struct Rank {
    SessionId session{};
    RankAsk ask;
    uint64_t host_charged = 0;
    uint64_t device_charged = 0;
    bool asked = false;              // to yield
    bool yielded = false;            // since it was admitted, or it had nothing to give back
    std::optional<Standing> told{};  // by TakeChanges
  };
  using Needs = std::map<Account, uint64_t>;
  // What of a job is in the sums over all jobs.
  struct Summed {
    Needs claims;
    bool waits = false;
    bool is_new = false;
  };
  struct Job {
    JobId id{};
    JobName name;
    RankAsk common;  // what is the same for all ranks
    JobState state = JobState::kGathering;
    bool held = false;
    Time since;             // of gathering, waiting or running
    double not_before = 0;  // its turn when it waits again: that of whoever made it yield
    std::map<int32_t, Rank> ranks;
    uint32_t position = 0;
    std::string reason;
    Summed summed;

    bool complete() const { return ranks.size() == common.ranks; }
    bool waits() const { return state == JobState::kQueued || state == JobState::kPreempted; }
    bool is_new() const { return state == JobState::kGathering || state == JobState::kQueued; }
    // What it must be admitted for, and was not handed out yet. Host memory stays promised to a job
    // that yields.
    Needs Wants() const;
    // What was promised to it, and not handed out yet.
    Needs Claims(SessionId except = kNoSession) const;
    Needs NeedsOf(bool host, bool device, SessionId except) const;
    // Of what it has there are whole arenas alone.
    bool has_arenas() const;
    bool has_any_arena() const;
    // Empty: nothing.
    std::string WhatStarts() const;
  };
  // The turn that a job waits for which made way for nobody.
  static constexpr double kAtOnce = -1e9;
  // The least is next.
  using Turn = std::tuple<double, int32_t, bool, uint64_t>;

  Job* FindJob(const JobName& name, const RankAsk& ask);
  Job* AddJob(const JobName& name, const RankAsk& common, Time since);
  Job* AddJob(JobId id, const JobName& name, const RankAsk& common, Time since);
  Job* JobToRestore(const JobName& name, const RankAsk& ask, const Standing& stood);
  absl::Status Rejoin(Job* job, const Rank& rank);
  Room MakeRoom(SessionId except) const;
  static void Claim(const std::string& tenant, const Needs& needs, Room* room);
  // Of a job that runs: its arenas, and what it was promised besides.
  static void FreeDevices(const Job& job, Room* room);
  static void KeepDevices(const Job& job, Room* room);
  static void Unpromise(const Job& job, Room* room);
  // To be called whenever something of a job has changed.
  void Note(Job* job);
  void Sum(Job* job, Summed now);
  void Erase(Job* job);
  // The account on which there is too little; none: it fits.
  static std::optional<Account> Lacks(const Job& job, const Room& room);

  void UndoLate(Time now);
  void UndoImpossible();
  void Undo(const Job& job, const absl::Status& why);
  Turn TurnOf(const Job& job) const;
  std::vector<Job*> InTurn();
  struct Decision;
  void DecideOn(Job* job, Decision* decision, JobActions* actions);
  void ClaimFor(const Job& job, const Needs& wants, Decision* decision);
  void Admit(Job* job, Time now, JobActions* actions);
  bool MakeWay(const Job& job, const Room& room, Decision* decision);
  void FindVictims(Decision* decision);
  std::vector<Job*> ChooseVictims(const Job& job, Room supposed, const Decision& decision);
  // It was asked for its device memory, and has not given it back in time.
  bool IsOverdue(const Job& job, Time now) const;
  // All of its ranks have their arenas, or none has and they have had the time to make them.
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
    bool changed = false;      // something that a decision could act on
    bool room_shrank = false;  // for those that wait: others may have to be asked
    Time decided_at;
    Time quiet_until;         // no decision before, whatever has changed
    std::optional<Time> due;  // by the clock alone
    uint64_t looks = 0;
  } pace_;
  uint64_t last_job_ = 0;
  JobCounters counters_;
  std::map<JobId, Job> jobs_;
  std::map<SessionId, JobId> ranks_;
  std::map<SessionId, absl::Status> undone_;
  // Sums over all jobs: what was promised and not handed out, how many wait for room, and of which
  // tenant how many were not admitted yet. No zeros.
  TenantBytes claims_;
  uint64_t waiting_ = 0;
  std::map<std::string, uint32_t> new_jobs_;
  std::set<JobId> untold_;  // see TakeChanges
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_JOBS_JOB_QUEUE_H_
