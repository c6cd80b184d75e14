// The sessions of this node and all operations on them: the only interface for the event loop, the
// threads of gRPC and the metrics.
//
//   SessionTable   the sessions, the engine and the mutex over both
//   Attachments    opens sessions; Replacements: for the replacement of a dead client
//   SessionEnds    closes them; SessionJobs: operations on the sessions of a job
//   SessionMemory  makes and frees chunks and arenas; Reclaimer: takes memory back
//   SessionPlans   plans, by which the engine evicts
//   RequestPump    the rings between daemon and clients
//   SessionStore   stores them for the next daemon; Restorer: adopts those of an earlier one
//   Tally          counters for the metrics
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_HUB_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_HUB_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "daemon/core/engine/engine.h"
#include "daemon/gpus/gpus.h"
#include "daemon/metrics/reading.h"
#include "daemon/metrics/session_counters.h"
#include "daemon/os/machine.h"
#include "daemon/service/heritage/inherited_descriptors.h"
#include "daemon/service/heritage/node_record.h"
#include "daemon/service/sessions/attachments.h"
#include "daemon/service/sessions/client_session.h"
#include "daemon/service/sessions/reclaimer.h"
#include "daemon/service/sessions/request_pump.h"
#include "daemon/service/sessions/session_ends.h"
#include "daemon/service/sessions/session_hub_options.h"
#include "daemon/service/sessions/session_jobs.h"
#include "daemon/service/sessions/session_memory.h"
#include "daemon/service/sessions/session_plans.h"
#include "daemon/service/sessions/session_statistics.h"
#include "daemon/service/sessions/session_store.h"
#include "daemon/service/sessions/session_table.h"
#include "daemon/service/sessions/waker.h"

namespace geminid::service {

// Counts over all sessions so far.
struct SessionHubCounters {
  metrics::SessionCounters::Reading counted;  // of every session so far, the ended ones included
  metrics::TakeOverReading take_over;
  metrics::UsageAndLimit plan_memory_bytes;
  std::map<shm::Tier, core::TimeHistogram> allocations;
};

// Thread-safe, unless a section says otherwise.
class SessionHub {
 public:
  using Closed = service::Closed;
  using CreatedArena = service::CreatedArena;
  using EndedJob = service::EndedJob;
  using PumpResult = service::PumpResult;

  // Takes over the sessions that an earlier daemon left in the store: see Restorer. Contradictory
  // ones are given up, with an error in the log. On an error all stays as it is, for the next
  // daemon. FAILED_PRECONDITION: another release left them, or the configuration gives less than
  // they have. RESOURCE_EXHAUSTED: the system lacked memory, threads or descriptors for longer than
  // `shortage` waits; if that is null, a Shortage of its own.
  static absl::StatusOr<std::unique_ptr<SessionHub>> Create(const SessionHubOptions& options,
                                                            Shortage* shortage = nullptr);
  // To be called once the daemon has survived what it took over.
  void HasServed() { table_.Lock().engine().HasServed(); }
  // Puts everything into the store again, after the store has lost it.
  void KeepAll();

  // --- sessions ----------------------------------------------------------------------------------
  // Opens a session for the client at the other end of `socket`: the retained session of a dead
  // client, if this is its replacement. UNAVAILABLE: that client lives. ABORTED: the session was
  // ended meanwhile.
  absl::StatusOr<SessionPtr> Open(const core::SessionSpec& spec, os::Peer peer,
                                  base::UniqueFd socket) {
    return attachments_.Open(spec, std::move(peer), std::move(socket));
  }
  // The client has its Welcome: its session outlives the daemon from now on.
  void SetWelcomed(const SessionPtr& session) { attachments_.SetWelcomed(session); }
  // Does nothing if the session has ended before, or a replacement has it.
  [[nodiscard]] Closed Close(const SessionPtr& session, core::CloseReason reason) {
    return ends_.Close(session, reason);
  }
  // The session with this token in hexadecimal; UNAUTHENTICATED if there is none. Notes that its
  // client was welcomed.
  absl::StatusOr<SessionPtr> Authenticate(const std::string& token_hex) {
    return attachments_.Authenticate(token_hex);
  }
  std::vector<SessionPtr> AllSessions();
  size_t AttachedSessions();
  // Tells the client its session's phase, and soon ends its connection as `end` says.
  void Tell(const SessionPtr& session, shm::Phase phase, SleepingClient::End end) {
    service::Tell(session, phase, end, &waker_);
  }

  // See Reclaimer.
  void Destroy(Garbage garbage) { reclaimer_.Destroy(std::move(garbage)); }
  void DestroyLater(Garbage garbage) { reclaimer_.DestroyLater(std::move(garbage)); }

  // --- memory: for gRPC threads; as long as it takes to populate the memory ----------------------
  // `again`: the client asked an earlier daemon before and got no answer; that daemon may have done
  // it. `number`: the client's number of the allocation.
  absl::StatusOr<core::Allocation> Allocate(const SessionPtr& session,
                                            const std::vector<core::ChunkSpec>& specs,
                                            uint64_t number = 0, bool again = false) {
    return memory_.Allocate(session, specs, number, again);
  }
  // Frees none if one of them may not be freed. But if the client begins to use one during the
  // call, those before it are freed.
  absl::Status Free(const SessionPtr& session, std::vector<shm::ChunkId> chunks,
                    bool again = false) {
    return memory_.Free(session, std::move(chunks), again);
  }
  // For memory that a dead client left to its replacement; see core::Engine.
  absl::StatusOr<core::Allocation> Claim(const SessionPtr& session,
                                         const std::vector<core::ChunkSpec>& specs,
                                         uint64_t number) {
    return memory_.Claim(session, specs, number);
  }
  absl::Status FreeOlder(const SessionPtr& session, uint64_t number) {
    return memory_.FreeOlder(session, number);
  }
  absl::StatusOr<CreatedArena> CreateArena(const SessionPtr& session, uint64_t bytes,
                                           bool again = false) {
    return memory_.CreateArena(session, bytes, again);
  }
  absl::Status ReleaseArena(const SessionPtr& session, bool again = false) {
    return memory_.ReleaseArena(session, again);
  }
  // See core::Engine.
  absl::StatusOr<uint64_t> HostShare(const SessionPtr& session) {
    return memory_.HostShare(session);
  }
  // Ends calls that populate memory, now and from now on, with CANCELLED.
  void CancelPopulating() { memory_.CancelPopulating(); }

  // --- jobs --------------------------------------------------------------------------------------
  // See core::Engine.
  absl::StatusOr<core::JobStatus> Admit(const SessionPtr& session, const std::string& run,
                                        const core::RankRequest& ask, uint32_t weight) {
    return jobs_.Admit(session, run, ask, weight);
  }
  // The next daemon is drained, too.
  void Drain(bool drained) { jobs_.Drain(drained); }
  // For all jobs of that name; returns how many. NOT_FOUND. FAILED_PRECONDITION: they cannot yield.
  absl::StatusOr<uint32_t> HoldJobs(const std::string& tenant, const std::string& job, bool hold) {
    return jobs_.Hold(tenant, job, hold);
  }
  // Ends all sessions of that job, or of one run if `run` names one. Live clients are told, and
  // their sessions end with them; `now`: at once.
  absl::StatusOr<EndedJob> EndJob(const std::string& tenant, const std::string& job,
                                  const std::string& run, bool now) {
    return jobs_.End(tenant, job, run, now);
  }
  // Tells the client of a session that its job was ended on request, if the session is there.
  void EndSession(shm::SessionId id) { jobs_.EndSession(id); }

  // --- plans -------------------------------------------------------------------------------------
  // Evictions follow `table` from now on. `trace` and `plan` are stored if there is room, for the
  // next daemon and for people. RESOURCE_EXHAUSTED: there is no room for `table`.
  absl::Status SetPlan(const SessionPtr& session, const core::NextUseTable& table,
                       const v1::Trace& trace, const v1::Plan& plan) {
    return plans_.Set(session, table, trace, plan);
  }

  // --- the fast path: for the event loop; see RequestPump ----------------------------------------
  PumpResult Pump(const SessionPtr& session) { return pump_.Pump(session); }
  void Tick() { pump_.Tick(); }
  std::optional<int64_t> NextTick() { return pump_.NextTick(); }

  // --- reading -----------------------------------------------------------------------------------
  // Calls `read` with the engine and the sessions, under the mutex.
  template <typename Read>
  auto Inspect(Read read) {
    const SessionTable::Locked locked = table_.Lock();
    return read(static_cast<const core::Engine&>(locked.engine()),
                static_cast<const Sessions&>(locked.sessions()));
  }
  // The same, with the metrics' numbers of that moment.
  template <typename Read>
  auto Observe(Read read) {
    const SessionTable::Locked locked = table_.Lock();
    return read(static_cast<const core::Engine&>(locked.engine()),
                static_cast<const Sessions&>(locked.sessions()), Numbers(locked));
  }

  // Linear in the chunks; see SessionTable::Locked.
  absl::Status Check() { return table_.Lock().Check(); }
  // See core::Engine::SetLimits.
  void SetLimits(const core::RunningLimits& limits) {
    table_.Lock().engine().SetLimits(limits, Now());
  }

  Limits& limits() const { return *options_.limits; }
  const os::Machine& machine() const { return options_.machine; }
  const gpus::Gpus* gpus() const { return options_.gpus; }
  bool huge_pages() const { return options_.huge_pages; }
  uint64_t daemon_epoch() const { return table_.epoch(); }

 private:
  SessionHub(const SessionHubOptions& options, NodeRecord node, ManifestFile file,
             core::Manifest manifest);
  static absl::StatusOr<std::unique_ptr<SessionHub>> CreateNew(const SessionHubOptions& options);
  static absl::StatusOr<std::unique_ptr<SessionHub>> TakeOver(const SessionHubOptions& options,
                                                              InheritedDescriptors* kept,
                                                              Shortage* shortage);
  static absl::StatusOr<std::unique_ptr<SessionHub>> Adopt(const SessionHubOptions& wanted,
                                                           InheritedDescriptors* kept);
  absl::Status AdoptSessions(InheritedDescriptors* kept, Shortage* shortage, core::Time began);
  NamedDescriptors NodeDescriptors() const;
  SessionHubCounters Numbers(const SessionTable::Locked& locked);

  const SessionHubOptions options_;
  NodeRecord node_;
  DescriptorsInFlight in_flight_;
  SessionTable table_;
  Waker waker_;
  SessionStore store_;
  SessionStatistics statistics_;
  SessionPlans plans_;
  Reclaimer reclaimer_;  // its thread uses the members before it
  SessionEnds ends_;
  Attachments attachments_;
  SessionMemory memory_;
  SessionJobs jobs_;
  RequestPump pump_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_HUB_H_
