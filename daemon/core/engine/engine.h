// The daemon's heart: sessions, chunks, arenas, quotas and transfers, tied together.
//
// Pure: no I/O, no threads, no clock. The shell hands in time and requests, and carries out what
// comes back: responses to put into rings, pools and arenas to release. Nothing here blocks, aborts
// or trusts a client: a request from shared memory is validated field by field, and a bad one is
// answered with an error and changes nothing. Not thread-safe: the shell holds one mutex.
//
// Order of things for the shell:
//   OpenSession -> map the session's segments so that Tables can reach them -> everything else.
//   BeginAllocation / BeginArena charge the memory; the shell makes it; FinishAllocation /
//   FinishArena give it to the session, and only then can anybody use or free it. Should one of
//   these fail, the shell destroys what it made and calls GiveBack.
//   What must survive this process is in the manifest and, where the shell gives it memory for
//   that, in the sessions' books: Restore and FinishRestore take it over from an earlier engine.
//   Whatever Releases names is no longer known to the engine: destroy it, then GiveBack its charge.
//   So the ledger shows at every moment what the kernel holds.
#ifndef GEMINID_DAEMON_CORE_ENGINE_ENGINE_H_
#define GEMINID_DAEMON_CORE_ENGINE_ENGINE_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/core/accounts/account.h"
#include "daemon/core/accounts/ledger.h"
#include "daemon/core/accounts/quota.h"
#include "daemon/core/accounts/shared_limit.h"
#include "daemon/core/basics/ids.h"
#include "daemon/core/basics/time.h"
#include "daemon/core/basics/time_histogram.h"
#include "daemon/core/chunks/chunk_states.h"
#include "daemon/core/chunks/extent_allocator.h"
#include "daemon/core/engine/charges.h"
#include "daemon/core/engine/engine_types.h"
#include "daemon/core/engine/node_limits.h"
#include "daemon/core/engine/refusals.h"
#include "daemon/core/engine/snapshots.h"
#include "daemon/core/jobs/job_queue.h"
#include "daemon/core/records/manifest.h"
#include "daemon/core/records/session_books.h"
#include "daemon/core/records/session_spec.h"
#include "daemon/core/transfers/transfer_scheduler.h"
#include "proto/shm/attach_messages.h"
#include "proto/shm/session_layout.h"

namespace geminid::core {

struct EvictionPlace;  // explanation.h

class Engine {
 public:
  // `tables` must outlive the engine. The manifest's memory too.
  Engine(const EngineOptions& options, Tables* tables, Manifest manifest);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // --- sessions ----------------------------------------------------------------------------------
  // The session belongs to one device for its life: the one it asks for, or that of its local rank.
  // RESOURCE_EXHAUSTED at the tenant's share; INVALID_ARGUMENT for a spec that makes no sense, or a
  // device that is not there, with those that are.
  absl::StatusOr<SessionId> OpenSession(const SessionSpec& spec, Time now);
  // The kept session of this tenant, job, run, rank and world, the youngest if there are several.
  std::optional<SessionId> FindKept(const SessionSpec& spec) const;
  // Whether the session is there and has a client.
  bool IsAttached(SessionId session) const { return FindAttached(session).ok(); }
  // A new process takes over a kept session. Its segments must be mapped again (lease words zero)
  // before the call, which publishes every chunk's state anew. `spec` replaces the old one but for
  // tenant, job, run, rank and world, which must be equal; its device, where one is asked for, must
  // be the old. Until SetWelcomed the books have it as kept.
  absl::Status ReopenSession(SessionId session, const SessionSpec& spec, Time now);
  // Cancels its transfers. Either all its memory is in the result, or the session is kept: chunks
  // that were being filled or gathered fall back to their last valid copy; so do those that were
  // leased, but not in a run, whose clients note what is whole themselves. NOT_FOUND: no such
  // session; a kept one can only be closed as kDetached.
  absl::StatusOr<Releases> CloseSession(SessionId session, CloseReason reason, Time now);
  // The same in slices: the first call decides, and nobody can use the session from then on. Then
  // ContinueClose for each session of Releases::closing, until it says true; it closes `most`
  // chunks at most, and adds to `*releases`. An engine that takes over in between ends the session,
  // or retains it, as was decided.
  absl::StatusOr<Releases> BeginClose(SessionId session, CloseReason reason, Time now);
  bool ContinueClose(SessionId session, size_t most, Releases* releases);

  // --- after a restart: engine_restore.cc --------------------------------------------------------
  // Notes the session there from now on; their facts are the session's. Without it, the session
  // ends with this process.
  void KeepBooks(SessionId session, const SessionBooks& books);
  // Its client knows of it, and counts on it from now on.
  void SetWelcomed(SessionId session);
  // Takes over what an earlier engine left, session by session and before anything else. All or
  // nothing: DATA_LOSS when what is there contradicts itself, RESOURCE_EXHAUSTED when the
  // capacities are less than what was handed out.
  absl::Status RestoreSession(const InheritedSession& inherited, Time now);
  // After the last of them. Records of nobody go; what clients see becomes what the manifest says;
  // copies that ended meanwhile are settled; the tickets of the others come again, for a client
  // that never got its own. From then on everything is as it was before the earlier engine ended.
  void FinishRestore(Time now, std::vector<Outgoing>* out);
  void HasServed() { manifest_.HasServed(); }

  // Of the session's device. NOT_FOUND: no such session.
  absl::StatusOr<DeviceDescription> DeviceOf(SessionId session) const;
  const std::vector<DeviceDescription>& devices() const { return options_.devices; }

  // --- memory ------------------------------------------------------------------------------------
  // One per session; the bytes are rounded up to the device's granularity.
  absl::StatusOr<Promise> BeginArena(SessionId session, uint64_t bytes);
  absl::Status FinishArena(ChargeId charge);
  // All or nothing. RESOURCE_EXHAUSTED says asked, free, top holder and what to do.
  // `number`, if not 0: which of its allocations it is for the client, see MadeBy.
  absl::StatusOr<Promise> BeginAllocation(SessionId session, std::vector<ChunkSpec> specs,
                                          uint64_t number = 0);
  // Both Finish: ABORTED when the session was closed meanwhile, whether it is kept or not.
  absl::StatusOr<Allocation> FinishAllocation(ChargeId charge);
  // The same in slices: each enters `most` chunks at most. Nothing: there are more. From the first
  // one on the pool is the session's.
  absl::StatusOr<std::optional<Allocation>> ContinueAllocation(ChargeId charge, size_t most);
  // Ends a charge, of a promise that is not finished or of Releases; another one is ignored.
  void GiveBack(ChargeId charge);
  // Begin and Finish in one, where the memory needs no making.
  absl::StatusOr<uint64_t> CreateArena(SessionId session, uint64_t bytes);
  absl::StatusOr<Allocation> Allocate(SessionId session, const std::vector<ChunkSpec>& specs);
  // All or nothing. FAILED_PRECONDITION names a chunk that is leased or in a transfer.
  absl::StatusOr<Releases> Free(SessionId session, const std::vector<ChunkId>& chunks);
  // What Free would say now, without freeing any.
  absl::Status CheckFree(SessionId session, const std::vector<ChunkId>& chunks) const;

  // One rank's share of the host memory that the sessions of its job on this node hold and may
  // still take, so that it does not matter which of them allocates first. `available_bytes`: what
  // the machine has for more pools.
  absl::StatusOr<uint64_t> HostShare(SessionId session, uint64_t available_bytes) const;

  // What allocations of the numbers from `first` up to `last` made: for a client that never learned
  // of it, or has no use for what a predecessor left.
  absl::StatusOr<std::vector<ChunkId>> MadeBy(SessionId session, uint64_t first,
                                              uint64_t last) const;

  // --- what a predecessor left: engine_successors.cc ---------------------------------------------
  // For the next client of the session: see shm::Welcome.
  uint32_t SuccessorNumber(SessionId session) const;
  // All that one allocation of a predecessor made, if that is exactly what `specs` say and all of
  // it is still there; from now on it is the allocation `number` of this client. NOT_FOUND if
  // there is none. Asked again, the answer is the same.
  absl::StatusOr<Allocation> Claim(SessionId session, const std::vector<ChunkSpec>& specs,
                                   uint64_t number);

  // --- jobs --------------------------------------------------------------------------------------
  // How the session's job stands; the first call asks for what the rank needs (its number and its
  // device are the session's). See JobQueue; PERMISSION_DENIED above the tenant's priority.
  absl::StatusOr<JobStanding> Admit(SessionId session, const std::string& run, RankAsk ask,
                                    uint32_t weight, Time now);
  // The arena goes, in which nothing may lie: FAILED_PRECONDITION. A session that has asked for
  // admission gets another one when its job is admitted again.
  absl::StatusOr<Releases> ReleaseArena(SessionId session, Time now);
  absl::Status HoldJob(JobId job, bool hold, Time now);
  // No new jobs, whether they ask for admission or not.
  void Drain(bool drained, Time now);
  const JobQueue& jobs() const { return jobs_; }

  // --- the fast path -----------------------------------------------------------------------------
  // Carries out one request copied out of the session's ring, and appends the answers that are due
  // now, which may be for any session. An unknown or kept session is ignored. Operations on one
  // chunk name it as `destination`, or as `source` with `destination` kNoChunk.
  //   kTransfer checks everything and takes the extent at once; its ticket may come later, from any
  // call. A later piece of a load may repeat kAllocateDestination. kPublishWhenDone and
  // kDropSourceWhenDone act when the last transfer that touches that device copy is done. A refused
  // drop is an error of the kTransferDone, whose ticket has ended all the same.
  //   Chunks begin FREE; FREE and HOLD may be evicted. Becoming FREE makes a dirty chunk clean.
  void HandleRequest(SessionId session, const shm::Request& request, Time now,
                     std::vector<Outgoing>* out);
  // Marks overdue tickets, ends kept sessions whose time is over, and gives the credits of sessions
  // that ended to those that wait.
  Releases Tick(Time now, std::vector<Outgoing>* out);
  // The same, but the sessions that end are in Releases::closing.
  Releases BeginTick(Time now, std::vector<Outgoing>* out);
  // When Tick has something to do next, unless something else happens first. Time() after
  // CloseSession: at once.
  std::optional<Time> NextTick() const;

  // Replaces the session's plan; evictions go by farthest next use from then on.
  absl::Status SetPlan(SessionId session, const NextUseTable& table);
  // The same in slices: the first takes the plan, and leaves the older one in `*plan`, for the
  // caller to destroy. Then PlaceByPlan, until it says true: it looks at `most` chunks from `*next`
  // on, which moves. Evictions in between may go by either plan.
  absl::Status BeginPlan(SessionId session, PlanUses* plan);
  bool PlaceByPlan(SessionId session, size_t* next, size_t most);

  // --- for the operator --------------------------------------------------------------------------
  // Ordered by id, beginning with `from`; at most `limit`.
  std::vector<SessionSnapshot> Sessions(SessionId from = {}, size_t limit = ~size_t{0}) const;
  // kNoSession: of all sessions. Ordered by session and chunk, beginning with `from`; at most
  // `limit`.
  std::vector<ChunkSnapshot> Chunks(SessionId session, size_t limit, ChunkPlace from = {}) const;
  std::optional<ChunkSnapshot> FindChunk(SessionId session, ChunkId chunk) const;
  uint64_t ChunkCount(SessionId session) const;
  // Ordered by session and pool, a session's arena before its pools; likewise.
  std::vector<PoolSnapshot> Pools(PoolPlace from = {}, size_t limit = ~size_t{0}) const;
  const Ledger& ledger() const { return ledger_; }
  const Quota& quota() const { return quota_; }
  // For what is asked from now on, and for sessions that end from now on.
  void SetLimits(const RunningLimits& limits, Time now);
  // A session that is alone and asks for no device gets none of these while there is another.
  void SetUnfit(std::set<DeviceIndex> devices) { unfit_ = std::move(devices); }
  const TransferScheduler& transfers() const { return scheduler_; }
  const Manifest& manifest() const { return manifest_; }
  const EngineCounters& counters() const { return counters_; }
  // Of sessions, chunks, host_memory, device_memory and waiting_jobs_per_tenant.
  const Refusals& refusals() const { return limits_.refusals(); }
  const SharedLimit& session_limit() const { return limits_.sessions(); }
  const SharedLimit& chunk_limit() const { return limits_.chunks(); }
  // Where the chunk is, why, and what would evict it: sentences.
  absl::StatusOr<std::vector<std::string>> Explain(SessionId session, ChunkId chunk) const;
  // Recomputes everything that can be recomputed and compares: ledger, quotas, extents, pins,
  // residency, valid copies. OK or INTERNAL with the first contradiction. Linear in the chunks.
  absl::Status Check() const;
  // The sums of Check, and `chunks` of its chunks, beginning at *next, which moves on: linear in
  // the sessions.
  absl::Status CheckSome(size_t chunks, ChunkPlace* next) const;

 private:
  struct Chunk;
  struct Pool;
  struct Session;
  struct Failure;

  // engine.cc
  Session* Find(SessionId session) const;
  absl::StatusOr<Session*> FindAttached(SessionId session) const;
  // engine_close.cc
  void BeginEnd(Session* session, Releases* releases);
  void BeginKeep(Session* session, Time until);
  void KeepChunk(Session* session, Chunk* chunk);
  void FinishEnd(Session* session, Releases* releases);
  void FinishKeep(Session* session);
  void CloseAll(Releases* releases);

  DeviceIndex DeviceFor(const SessionSpec& spec) const;

  // engine_restore.cc
  absl::StatusOr<std::unique_ptr<Session>> RebuildSession(const InheritedSession& inherited);
  absl::Status RebuildChunk(Session* session, const InheritedSession& inherited,
                            RecordIndex record);
  absl::Status RebuildNumbers(Session* session, const InheritedSession& inherited);
  absl::Status RebuildTransfer(Session* session, const NotedTransfer& noted, Time now);
  absl::Status HandOutAgain(const Session& session);
  void EnterAgain(Session* session);
  void ResumeTransfers(Session* session, Time now, std::vector<Outgoing>* out);

  // engine_jobs.cc
  void DecideJobs(Time now);
  void NoteJobs();
  absl::Status CheckAdmitted(const Session& session, bool arena) const;
  bool HasJob(const std::string& tenant, const std::string& job) const;
  bool IsOfJob(const Session& session, const Session& other) const;
  void ShareLinks(const std::string& tenant);

  // engine_allocation.cc
  absl::Status CheckSpecs(const Session& session, const std::vector<ChunkSpec>& specs) const;
  absl::Status ChargeMemory(const Session& session, Account account, uint64_t bytes);
  void EnterPool(Session* session, Charge* charge);
  void ReleasePool(Session* session, PoolId pool, Releases* releases);
  void Void(Charge* charge);
  void VoidPromises(Session* session, Releases* releases);
  void ReleaseMemory(const Session& session, Account account, uint64_t bytes, Releases* releases);
  absl::Status Refuse(const Session& session, Account account, uint64_t bytes);
  std::string AdviseOtherDevice(Account account, uint64_t bytes) const;
  Holder TopHolder(Account account) const;
  uint64_t ReturningBytes(Account account) const;
  ChunkId AddChunk(Session* session, ChunkSpec spec, PoolId pool, uint64_t offset,
                   uint64_t allocation);
  absl::Status CheckFreeable(const Session& session, const std::vector<ChunkId>& sorted) const;
  void FreeChunk(Session* session, ChunkId id, Releases* releases);

  // engine_successors.cc
  static bool IsLike(const Chunk& chunk, const ChunkSpec& spec);
  bool Matches(const std::vector<Chunk*>& chunks, const std::vector<ChunkSpec>& specs) const;
  Allocation TakeAllocation(const Session& session, const std::vector<Chunk*>& chunks,
                            uint64_t number);

  // engine_requests.cc
  static Failure NoSuchChunk(ChunkId chunk);
  Failure Dispatch(Session* session, const shm::Request& request, Time now, shm::Response* done);
  Failure AllocateExtent(Session* session, const shm::Request& request, shm::Response* done);
  Failure Publish(Session* session, const shm::Request& request);
  Failure Drop(Session* session, const shm::Request& request);
  Failure Transition(Session* session, const shm::Request& request);
  Failure CheckDirty(const Chunk& chunk, const ChunkStatus& status) const;
  Failure ReserveWorkspace(Session* session, const shm::Request& request, shm::Response* done);
  void PublishChunk(Session* session, Chunk* chunk);
  Failure DropChunk(Session* session, Chunk* chunk);

  // engine_transfers.cc
  Failure Transfer(Session* session, const shm::Request& request, Time now);
  Failure TransferDone(Session* session, const shm::Request& request, Time now);
  Failure CheckTransfer(const Session& session, const shm::Request& request,
                        Direction* direction) const;
  Failure CheckRange(const Session& session, const shm::Request& request) const;
  Failure CheckLoad(const Chunk& source, const Chunk& destination,
                    const shm::Request& request) const;
  Failure CheckStore(const Chunk& source, const Chunk& destination,
                     const shm::Request& request) const;
  void Count(Session* session, const TransferRequest& request, int by);
  Failure Settle(Session* session, const TransferRequest& request);
  void CountHomeWrite(Session* session, Chunk* chunk, int by);
  void SettleHomeWrite(Session* session, Chunk* chunk, const TransferRequest& request);
  Failure SettleIdle(Session* session, Chunk* chunk);
  void GrantTransfers(Time now, std::vector<Outgoing>* out);
  shm::Response Describe(const Session& session, const Ticket& ticket) const;

  // engine_eviction.cc
  Failure PlaceExtent(Session* session, Chunk* chunk, uint64_t offset, bool may_evict);
  Failure PlaceAt(Session* session, Chunk* chunk, uint64_t offset, bool may_evict);
  absl::StatusOr<uint64_t> PlaceAnywhere(Session* session, Chunk* chunk, bool may_evict);
  bool MakeRoom(Session* session, uint64_t begin, uint64_t end);
  std::vector<Extent> FindVictims(Session* session, uint64_t bytes);
  bool EvictAll(Session* session, const std::vector<Extent>& extents);
  // The moment of the next use; Departures::kNever: not in the plan, or its payload is gone.
  uint32_t NextUse(const Session& session, const Chunk& chunk) const;
  std::string WhyNotEvictable(const Session& session, const Chunk& chunk) const;
  bool MayLeave(const Chunk& chunk, const ChunkStatus& status) const;
  bool IsLeased(const Session& session, const Chunk& chunk) const;
  void UpdateDeparture(Session* session, Chunk* chunk);
  void Touch(Session* session, Chunk* chunk);
  bool TryDrop(Session* session, Chunk* chunk);
  bool BeginEvict(Session* session, Chunk* chunk);
  void CancelEvict(Session* session, Chunk* chunk);
  void RemoveExtent(Session* session, Chunk* chunk);

  // A chunk's status: read from the manifest, written there first and then published. What is valid
  // follows from the rest.
  ChunkStatus StatusOf(const Chunk& chunk) const;
  void SetStatus(Session* session, Chunk* chunk, ChunkStatus status);
  static ValidLocation ValidOf(const Chunk& chunk, const ChunkStatus& status);
  // The chunk's other words of the manifest.
  void NoteProgress(const Chunk& chunk);
  void BeginDirtyEpoch(Chunk* chunk);

  // engine_snapshots.cc, engine_explain.cc, engine_check.cc
  ChunkSnapshot Snapshot(const Session& session, const Chunk& chunk) const;
  EvictionPlace PlaceInEvictionOrder(const Session& session, const Chunk& chunk) const;
  absl::Status CheckSums() const;
  absl::Status CheckChunk(const Session& session, const Chunk& chunk) const;
  absl::Status CheckExtents(const Session& session) const;
  absl::Status CheckSession(const Session& session) const;

  EngineOptions options_;
  std::set<DeviceIndex> unfit_;
  Tables* tables_;
  Manifest manifest_;
  Ledger ledger_;
  Quota quota_;
  JobQueue jobs_;
  NodeLimits limits_;
  TransferScheduler scheduler_;
  EngineCounters counters_;
  bool grants_are_due_ = false;
  std::map<SessionId, std::unique_ptr<Session>> sessions_;
  // Retained sessions by the end of their time, but for those that somebody ends already.
  std::set<std::pair<Time, SessionId>> kept_;
  Charges charges_;
  // Between the first RestoreSession and FinishRestore: records that no session has claimed.
  std::optional<std::map<SessionId, std::vector<RecordIndex>>> unclaimed_;
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_ENGINE_ENGINE_H_
