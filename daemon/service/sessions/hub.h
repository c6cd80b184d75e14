// The sessions of this node and everything that is done with them: the one door for the event loop,
// the threads of gRPC and the metrics.
//
//   SessionTable   the sessions, the engine and the mutex over both
//   Attachments    opens sessions; Replacements: for the replacement of a dead client
//   SessionEnds    closes them; SessionJobs: those of a job, and what the operator asks of it
//   SessionMemory  makes and frees chunks and arenas; Reclaimer: takes memory back
//   SessionPlans   plans, by which the engine evicts
//   RequestPump    the rings between daemon and clients
//   SessionStore   what the next daemon finds; Restorer: what an earlier one left
//   Tally          counters for the metrics
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_HUB_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_HUB_H_

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
#include "daemon/service/heritage/keepsakes.h"
#include "daemon/service/heritage/node_record.h"
#include "daemon/service/sessions/attachments.h"
#include "daemon/service/sessions/client_session.h"
#include "daemon/service/sessions/hub_options.h"
#include "daemon/service/sessions/reclaimer.h"
#include "daemon/service/sessions/request_pump.h"
#include "daemon/service/sessions/session_ends.h"
#include "daemon/service/sessions/session_jobs.h"
#include "daemon/service/sessions/session_memory.h"
#include "daemon/service/sessions/session_plans.h"
#include "daemon/service/sessions/session_store.h"
#include "daemon/service/sessions/session_table.h"
#include "daemon/service/sessions/tally.h"
#include "daemon/service/sessions/waker.h"

namespace geminid::service {

// What was counted of all sessions so far.
struct HubNumbers {
  metrics::SessionCounters::Reading counted;  // of every session so far, the ended ones included
  metrics::TakeOverReading take_over;
  metrics::UsedOfLimit plan_memory_bytes;
  std::map<shm::Tier, core::TimeHistogram> allocations;
};

// Thread-safe, unless a section says otherwise.
class Hub {
 public:
  using Closed = service::Closed;
  using ArenaMade = service::ArenaMade;
  using EndedJob = service::EndedJob;
  using Pumped = service::Pumped;

  // Takes over what an earlier daemon left in the store: see Restorer. What contradicts itself is
  // given up, with an error in the log. On an error all stays as it is, for the next daemon.
  // FAILED_PRECONDITION: another release left it, or the configuration gives less than sessions
  // have. RESOURCE_EXHAUSTED: the system lacked memory, threads or descriptors for longer than
  // `shortage` waits, or, where that is null, a Shortage of its own.
  static absl::StatusOr<std::unique_ptr<Hub>> Create(const HubOptions& options,
                                                     Shortage* shortage = nullptr);
  // Once what was taken over has not ended this daemon.
  void HasServed() { table_.Lock().engine().HasServed(); }
  // Puts everything into the store again, which has lost it.
  void KeepAll();

  // --- sessions ----------------------------------------------------------------------------------
  // Opens a session for whoever is at the other end of `socket`: the retained one of a dead client,
  // if this is its replacement. UNAVAILABLE while that client lives. ABORTED: the session was ended
  // meanwhile.
  absl::StatusOr<SessionPtr> Open(const core::SessionSpec& spec, os::Peer peer,
                                  base::UniqueFd socket) {
    return attachments_.Open(spec, std::move(peer), std::move(socket));
  }
  // The client has been told: its session outlives the daemon from now on.
  void SetWelcomed(const SessionPtr& session) { attachments_.SetWelcomed(session); }
  // Nothing where the session has ended before or a replacement has it.
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
  // Tells the client in which phase its session is, and ends so much of its connection, soon.
  void Tell(const SessionPtr& session, shm::Phase phase, Sleeper::End end) {
    service::Tell(session, phase, end, &waker_);
  }

  // See Reclaimer.
  void Destroy(Garbage garbage) { reclaimer_.Destroy(std::move(garbage)); }
  void DestroyLater(Garbage garbage) { reclaimer_.DestroyLater(std::move(garbage)); }

  // --- memory: for gRPC threads; as long as it takes to populate the memory ----------------------
  // `again`: the client asked an earlier daemon before, which may have done it, and heard nothing.
  // `number`: of the allocation, as the client counts them.
  absl::StatusOr<core::Allocation> Allocate(const SessionPtr& session,
                                            const std::vector<core::ChunkSpec>& specs,
                                            uint64_t number = 0, bool again = false) {
    return memory_.Allocate(session, specs, number, again);
  }
  // None, where one of them may not be; but those before it, where the client begins to use one
  // during the call.
  absl::Status Free(const SessionPtr& session, std::vector<shm::ChunkId> chunks,
                    bool again = false) {
    return memory_.Free(session, std::move(chunks), again);
  }
  // Of what a dead client left to its replacement; see core::Engine.
  absl::StatusOr<core::Allocation> Claim(const SessionPtr& session,
                                         const std::vector<core::ChunkSpec>& specs,
                                         uint64_t number) {
    return memory_.Claim(session, specs, number);
  }
  absl::Status FreeOlder(const SessionPtr& session, uint64_t number) {
    return memory_.FreeOlder(session, number);
  }
  absl::StatusOr<ArenaMade> CreateArena(const SessionPtr& session, uint64_t bytes,
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
  // Ends calls that are populating memory, with CANCELLED. They stay ended.
  void CancelPopulating() { memory_.CancelPopulating(); }

  // --- jobs --------------------------------------------------------------------------------------
  // See core::Engine.
  absl::StatusOr<core::JobStanding> Admit(const SessionPtr& session, const std::string& run,
                                          const core::RankAsk& ask, uint32_t weight) {
    return jobs_.Admit(session, run, ask, weight);
  }
  // It stays so for the next daemon.
  void Drain(bool drained) { jobs_.Drain(drained); }
  // All jobs of that name; how many. NOT_FOUND, or FAILED_PRECONDITION where they cannot yield.
  absl::StatusOr<uint32_t> HoldJobs(const std::string& tenant, const std::string& job, bool hold) {
    return jobs_.Hold(tenant, job, hold);
  }
  // All sessions of that name, of one run of it where `run` names one. Those whose clients live are
  // told so, and end with them; `now`: at once.
  absl::StatusOr<EndedJob> EndJob(const std::string& tenant, const std::string& job,
                                  const std::string& run, bool now) {
    return jobs_.End(tenant, job, run, now);
  }

  // --- plans -------------------------------------------------------------------------------------
  // `plan`, and what it was made from: kept where there is room, for the next daemon and for
  // people. RESOURCE_EXHAUSTED when there is none for `table`, which evictions go by.
  absl::Status SetPlan(const SessionPtr& session, const core::NextUseTable& table,
                       const v1::Trace& trace, const v1::Plan& plan) {
    return plans_.Set(session, table, trace, plan);
  }

  // --- the fast path: for the event loop; see RequestPump ----------------------------------------
  Pumped Pump(const SessionPtr& session) { return pump_.Pump(session); }
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
  // The same with the numbers of that moment, for the metrics.
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
  Hub(const HubOptions& options, NodeRecord node, ManifestFile file, core::Manifest manifest);
  static absl::StatusOr<std::unique_ptr<Hub>> CreateNew(const HubOptions& options);
  static absl::StatusOr<std::unique_ptr<Hub>> TakeOver(const HubOptions& options, Keepsakes* kept,
                                                       Shortage* shortage);
  static absl::StatusOr<std::unique_ptr<Hub>> Adopt(const HubOptions& wanted, Keepsakes* kept);
  absl::Status AdoptSessions(Keepsakes* kept, Shortage* shortage, core::Time began);
  NamedDescriptors NodeDescriptors() const;
  HubNumbers Numbers(const SessionTable::Locked& locked);

  const HubOptions options_;
  NodeRecord node_;
  InFlight in_flight_;
  SessionTable table_;
  Waker waker_;
  SessionStore store_;
  Tally tally_;
  SessionPlans plans_;
  Reclaimer reclaimer_;  // its thread uses those before it
  SessionEnds ends_;
  Attachments attachments_;
  SessionMemory memory_;
  SessionJobs jobs_;
  RequestPump pump_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_HUB_H_
