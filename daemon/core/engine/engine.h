// The daemon's core: it ties sessions, chunks, arenas, quotas and transfers together.
//
// Pure: no I/O, no threads, no clock. The caller ("the shell": daemon/service) hands in time and
// requests, puts the responses into rings, and releases pools and arenas. Nothing here blocks,
// aborts or trusts a client: each field of a request from shared memory is validated, and a bad
// request gets an error and changes nothing. Not thread-safe: the shell holds one mutex.
//
// The order of calls:
//   OpenSession; then map the session's segments, so that Tables can reach them; then the others.
//   BeginAllocation / BeginArena charge the memory; the shell makes it; FinishAllocation /
//   FinishArena give it to the session. Only then can anybody use or free it. If making the memory
//   or finishing fails, the shell destroys it and calls GiveBack.
//   State that must survive this process is in the manifest and, for sessions with KeepBooks, in
//   their books. RestoreSession and FinishRestore take it over from an earlier engine.
//   Memory in Releases is no longer known to the engine: destroy it, then GiveBack its charge.
//   So the ledger shows at every moment what the kernel holds.
#ifndef GEMINID_DAEMON_CORE_ENGINE_ENGINE_H_
#define GEMINID_DAEMON_CORE_ENGINE_ENGINE_H_

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
  // `tables` and the manifest's memory must outlive the engine.
  Engine(const EngineOptions& options, Tables* tables, Manifest manifest);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // --- sessions ----------------------------------------------------------------------------------
  // The session belongs to one device for its life: the one it asks for, or one that the engine
  // chooses. RESOURCE_EXHAUSTED: the tenant has its share of sessions. INVALID_ARGUMENT: the spec
  // makes no sense, or names a missing device; the message lists the existing ones.
  absl::StatusOr<SessionId> OpenSession(const SessionSpec& spec, Time now);
  // The retained session of this tenant, job, run, rank and world; of several, the youngest.
  std::optional<SessionId> FindKept(const SessionSpec& spec) const;
  // Whether the session exists and has a client.
  bool IsAttached(SessionId session) const { return FindAttached(session).ok(); }
  // A new process takes over a retained session. Before the call its segments must be mapped again,
  // with lease words zero; the call publishes every chunk's state anew. `spec` replaces the old
  // one. Tenant, job, run, rank and world must be the old ones, and so must the device if `spec`
  // names one. Until SetWelcomed the books show the session as retained.
  absl::Status ReopenSession(SessionId session, const SessionSpec& spec, Time now);
  // Cancels the session's transfers. Then either all its memory is in the result, or it is
  // retained. Retained chunks that were being filled or gathered fall back to their last valid
  // copy. So do leased ones, except in a run, whose clients record themselves which copies are
  // whole. NOT_FOUND: no such session. A retained session can only be closed as kDetached.
  absl::StatusOr<Releases> CloseSession(SessionId session, CloseReason reason, Time now);
  // CloseSession in slices. BeginClose decides; nobody can use the session from then on. Then call
  // ContinueClose for each session of Releases::closing until it returns true. Each call closes at
  // most `most` chunks and adds to `*releases`. An engine that takes over in between ends or
  // retains the session, as BeginClose decided.
  absl::StatusOr<Releases> BeginClose(SessionId session, CloseReason reason, Time now);
  bool ContinueClose(SessionId session, size_t most, Releases* releases);

  // --- after a restart: engine_restore.cc --------------------------------------------------------
  // Records the session in `books` from now on; the facts in them must be the session's. Without
  // books, the session ends with this process.
  void KeepBooks(SessionId session, const SessionBooks& books);
  // The client has learned of its session, and relies on it from now on.
  void SetWelcomed(SessionId session);
  // Takes over one session of an earlier engine; to be called before anything else. All or nothing.
  // DATA_LOSS: the session's records contradict each other. RESOURCE_EXHAUSTED: the capacities are
  // less than the memory that was handed out.
  absl::Status RestoreSession(const InheritedSession& inherited, Time now);
  // After the last RestoreSession. Deletes records without a session, publishes the manifest's
  // states to the clients, and settles copies that ended meanwhile. The tickets of the other copies
  // are sent again, for clients that never got them. The earlier engine's state is then restored.
  void FinishRestore(Time now, std::vector<Outgoing>* out);
  void HasServed() { manifest_.HasServed(); }

  // The session's device. NOT_FOUND: no such session.
  absl::StatusOr<DeviceDescription> DeviceOf(SessionId session) const;
  const std::vector<DeviceDescription>& devices() const { return options_.devices; }

  // --- memory ------------------------------------------------------------------------------------
  // An arena, at most one per session. `bytes` is rounded up to the device's granularity.
  absl::StatusOr<Promise> BeginArena(SessionId session, uint64_t bytes);
  absl::Status FinishArena(ChargeId charge);
  // All or nothing. RESOURCE_EXHAUSTED says how much was asked for and is free, who holds most, and
  // what to do. `number`: the client's number of this allocation, see MadeBy; 0: none.
  absl::StatusOr<Promise> BeginAllocation(SessionId session, std::vector<ChunkSpec> specs,
                                          uint64_t number = 0);
  // FinishArena and FinishAllocation: ABORTED if the session was closed meanwhile, retained or not.
  absl::StatusOr<Allocation> FinishAllocation(ChargeId charge);
  // FinishAllocation in slices: each call enters at most `most` chunks, and returns nullopt while
  // there are more. The first call makes the pool the session's.
  absl::StatusOr<std::optional<Allocation>> ContinueAllocation(ChargeId charge, size_t most);
  // Ends the charge of an unfinished promise or of Releases. Any other id is ignored.
  void GiveBack(ChargeId charge);
  // Begin and Finish in one call, for memory that needs no making.
  absl::StatusOr<uint64_t> CreateArena(SessionId session, uint64_t bytes);
  absl::StatusOr<Allocation> Allocate(SessionId session, const std::vector<ChunkSpec>& specs);
  // All or nothing. FAILED_PRECONDITION names a chunk that is leased or in a transfer.
  absl::StatusOr<Releases> Free(SessionId session, const std::vector<ChunkId>& chunks);
  // The status that Free would return now. Frees nothing.
  absl::Status CheckFree(SessionId session, const std::vector<ChunkId>& chunks) const;

  // One rank's share of the host memory that the sessions of its job on this node hold and may
  // still take. The share is the same whichever rank allocates first. `available_bytes`: the host
  // memory that the machine has for further pools.
  absl::StatusOr<uint64_t> HostShare(SessionId session, uint64_t available_bytes) const;

  // The chunks of the allocations numbered `first` to `last`. For a client that never got the
  // answer to an allocation, or that has no use for the previous client's chunks.
  absl::StatusOr<std::vector<ChunkId>> MadeBy(SessionId session, uint64_t first,
                                              uint64_t last) const;

  // --- what a previous client left: engine_successors.cc -----------------------------------------
  // The number of the session's next client: see shm::Welcome.
  uint32_t SuccessorNumber(SessionId session) const;
  // Hands over one allocation of a previous client, if its chunks are exactly those of `specs` and
  // all of them still exist. From now on it is the allocation `number` of this client. NOT_FOUND:
  // there is no such allocation; names how the one most like it differs. A repeated call returns
  // the same.
  absl::StatusOr<Allocation> Claim(SessionId session, const std::vector<ChunkSpec>& specs,
                                   uint64_t number);

  // --- jobs --------------------------------------------------------------------------------------
  // The standing of the session's job, see JobQueue. The first call asks for the rank's memory; the
  // session sets `ask`'s rank and device. PERMISSION_DENIED: above the tenant's priority.
  absl::StatusOr<JobStatus> Admit(SessionId session, const std::string& run, RankRequest ask,
                                  uint32_t weight, Time now);
  // Releases the arena. FAILED_PRECONDITION: something lies in it. A session that has asked for
  // admission may make another arena once its job is admitted again.
  absl::StatusOr<Releases> ReleaseArena(SessionId session, Time now);
  absl::Status HoldJob(JobId job, bool hold, Time now);
  // A hold stays with the memory of ranks that died, and returns with their replacements. This ends
  // the holds of runs whose ranks have not returned; gives their number.
  uint32_t LetGoRetained(const std::string& tenant, const std::string& job);
  // While drained, new jobs get no memory, whether they ask for admission or not.
  void Drain(bool drained, Time now);
  const JobQueue& jobs() const { return jobs_; }

  // --- the fast path -----------------------------------------------------------------------------
  // Carries out one request, copied out of the session's ring, and appends the answers that are due
  // now; they may be for any session. A request of an unknown or retained session is ignored.
  // Operations on one chunk name it as `destination`, or as `source` with `destination` kNoChunk.
  //   kTransfer checks everything and takes the extent at once. Its ticket may come from any later
  // call. A later piece of a load may repeat kAllocateDestination. kPublishWhenDone and
  // kDropSourceWhenDone take effect when the last transfer of that device copy is done. A refused
  // drop is an error of the kTransferDone, whose ticket has ended all the same.
  //   Chunks begin FREE; FREE and HOLD may be evicted. Becoming FREE makes a dirty chunk clean.
  void HandleRequest(SessionId session, const shm::Request& request, Time now,
                     std::vector<Outgoing>* out);
  // Marks overdue tickets, ends retained sessions whose time is over, decides about jobs, and
  // grants waiting transfers the credits of sessions that ended.
  Releases Tick(Time now, std::vector<Outgoing>* out);
  // Tick, except that it leaves the ending sessions in Releases::closing, for ContinueClose.
  Releases BeginTick(Time now, std::vector<Outgoing>* out);
  // When Tick must be called next, unless another call comes first. Time() means at once, for
  // instance after CloseSession.
  std::optional<Time> NextTick() const;

  // Replaces the session's plan; evictions go by farthest next use from then on.
  absl::Status SetPlan(SessionId session, const NextUseTable& table);
  // SetPlan in slices. BeginPlan takes the plan, leaving the old one in `*plan`, for the caller to
  // destroy. Then call PlaceByPlan until it returns true: it looks at most at `most` chunks from
  // `*next` on, and advances `*next`. Evictions in between may follow either plan.
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
  // Ordered by session and pool, a session's arena before its pools; from `from`, at most `limit`.
  std::vector<PoolSnapshot> Pools(PoolPlace from = {}, size_t limit = ~size_t{0}) const;
  const Ledger& ledger() const { return ledger_; }
  const Quota& quota() const { return quota_; }
  // Applies to later requests, and to sessions that end later.
  void SetLimits(const RunningLimits& limits, Time now);
  // A single-rank session that names no device gets none of these while there is another device.
  void SetUnfit(std::set<DeviceIndex> devices) { unfit_ = std::move(devices); }
  const TransferScheduler& transfers() const { return scheduler_; }
  const Manifest& manifest() const { return manifest_; }
  const EngineCounters& counters() const { return counters_; }
  // By the limits sessions, chunks, host_memory, device_memory and waiting_jobs_per_tenant.
  const Refusals& refusals() const { return limits_.refusals(); }
  const SharedLimit& session_limit() const { return limits_.sessions(); }
  const SharedLimit& chunk_limit() const { return limits_.chunks(); }
  // Sentences that say where the chunk is, why, and what would evict it.
  absl::StatusOr<std::vector<std::string>> Explain(SessionId session, ChunkId chunk) const;
  // Recomputes everything that can be recomputed and compares: ledger, quotas, extents, pins,
  // residency, valid copies. OK or INTERNAL with the first contradiction. Linear in the chunks.
  absl::Status Check() const;
  // A slice of Check: its sums, and `chunks` chunks from `*next` on, which advances. Cost: linear
  // in the sessions.
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
  void FinishKeep(Session* session, Releases* releases);
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
  // Of a pool with so many bytes of chunks.
  uint64_t PoolBytes(uint64_t bytes) const;
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
  std::string MostAlike(const Session& session, const std::vector<ChunkSpec>& specs,
                        uint64_t number) const;
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
  // The moment of the next use; EvictionOrder::kNever: not in the plan, or its payload is gone.
  uint32_t NextUse(const Session& session, const Chunk& chunk) const;
  std::string WhyNotEvictable(const Session& session, const Chunk& chunk) const;
  bool MayLeave(const Chunk& chunk, const ChunkStatus& status) const;
  bool IsLeased(const Session& session, const Chunk& chunk) const;
  void UpdateEvictionEntry(Session* session, Chunk* chunk);
  void Touch(Session* session, Chunk* chunk);
  bool TryDrop(Session* session, Chunk* chunk);
  bool BeginEvict(Session* session, Chunk* chunk);
  void CancelEvict(Session* session, Chunk* chunk);
  void RemoveExtent(Session* session, Chunk* chunk);

  // A chunk's status is read from the manifest. A change is written there first and then published.
  // ValidOf derives the valid location from the other fields.
  ChunkStatus StatusOf(const Chunk& chunk) const;
  void SetStatus(Session* session, Chunk* chunk, ChunkStatus status);
  static ValidLocation ValidOf(const Chunk& chunk, const ChunkStatus& status);
  // These write the chunk's other words in the manifest.
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
  // Retained sessions by the end of their time, except those that are already being ended.
  std::set<std::pair<Time, SessionId>> kept_;
  Charges charges_;
  // Between the first RestoreSession and FinishRestore: records that no session has claimed.
  std::optional<std::map<SessionId, std::vector<RecordIndex>>> unclaimed_;
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_ENGINE_ENGINE_H_
