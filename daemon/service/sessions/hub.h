// The engine, the memory of the sessions, and the one mutex over both.
//
// The event loops and the gRPC threads meet here. Nothing slow happens under the mutex: memory is
// created before it is taken and destroyed after it is given back.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_HUB_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_HUB_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mapping.h"
#include "base/unique_fd.h"
#include "daemon/core/engine/engine.h"
#include "daemon/gpus/gpus.h"
#include "daemon/metrics/reading.h"
#include "daemon/metrics/session_counters.h"
#include "daemon/os/crash_note.h"
#include "daemon/os/machine.h"
#include "daemon/service/heritage/keepsakes.h"
#include "daemon/service/heritage/shortage.h"
#include "daemon/service/sessions/client_session.h"
#include "daemon/service/sessions/waker.h"

namespace geminid::service {

using SessionPtr = std::shared_ptr<ClientSession>;

// The engine's view of the shared tables. Used under the hub's mutex only.
class SharedTables : public core::Tables {
 public:
  void PublishState(shm::SessionId session, shm::ChunkId chunk, uint64_t word) override;
  uint64_t ReadLease(shm::SessionId session, shm::ChunkId chunk) override;
  uint64_t ReadCompletion(shm::SessionId session, uint16_t index) override;
  void PublishYield(shm::SessionId session, bool asked) override;

  std::map<shm::SessionId, SessionPtr> sessions;  // the kept ones included
};

// What nobody may use any more, and the charges that end when it is destroyed.
struct Garbage {
  struct Arena {
    std::unique_ptr<memory::DeviceArena> memory;
    base::UniqueFd holder;  // see DeviceArena::Revoke
  };
  std::vector<memory::HostPool> pools;
  std::vector<Arena> arenas;
  std::vector<SessionPtr> sessions;  // only let go of
  std::vector<SessionPtr> ended;     // for good
  std::vector<core::ChargeId> charges;
  std::vector<std::string> keepsakes;  // by name
  bool empty() const {
    return keepsakes.empty() && pools.empty() && arenas.empty() && sessions.empty() &&
           ended.empty() && charges.empty();
  }
};

// Destroys memory on a thread of its own: giving back tens of gigabytes takes seconds.
class Reaper {
 public:
  explicit Reaper(std::function<void(Garbage)> destroy) : destroy_(std::move(destroy)) {}
  ~Reaper();  // destroys what is left
  // RESOURCE_EXHAUSTED when the system gives no thread.
  absl::Status Start();
  void Destroy(Garbage garbage);

 private:
  void Run();

  const std::function<void(Garbage)> destroy_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Garbage> garbage_;  // guarded by mutex_
  bool stopping_ = false;         // guarded by mutex_
  std::thread thread_;
};

struct HubOptions {
  core::EngineOptions engine;
  gpus::Gpus* gpus = nullptr;  // outlives the hub; null: no device is one
  // Nobody chose them: an earlier daemon's are as good.
  bool host_capacity_is_default = false;
  bool device_capacities_are_default = false;
  // Where the daemon's successor finds what it needs; null: sessions end with the daemon. Outlives
  // the hub.
  holder::DescriptorStore* store = nullptr;
  Limits* limits = nullptr;  // outlives the hub
  os::Machine machine;
  const os::Numa* numa = &os::SystemNuma();        // outlives the hub
  uint32_t chunk_records = 4 * shm::kMaxChunks;    // of all sessions: 64 bytes each
  uint64_t plan_memory_bytes = uint64_t{1} << 30;  // for plans and traces, of all sessions
  bool huge_pages = false;
  memory::Backing arena_backing = memory::Backing::kPopulated;
  uint64_t daemon_epoch = 0;
  Shortage::Pause pause = nullptr;  // while the system lacks resources; null: sleeps
};

// What the hub itself has counted.
struct HubNumbers {
  metrics::SessionCounters::Reading counted;  // of every session so far, the ended ones included
  metrics::TakeOverReading take_over;
  metrics::UsedOfLimit plan_memory_bytes;
  std::map<shm::Tier, core::TimeHistogram> allocations;
};

class Hub {
 public:
  // Takes over what an earlier daemon left in the store: see hub_restore.cc. What contradicts
  // itself is given up, with an error in the log. On an error all stays as it is, for the next
  // daemon: FAILED_PRECONDITION when another release left it, or the configuration gives less than
  // sessions have; RESOURCE_EXHAUSTED when the system lacked memory, threads or descriptors for too
  // long.
  static absl::StatusOr<std::unique_ptr<Hub>> Create(const HubOptions& options);
  // What an earlier daemon left of a session's memory.
  struct KeptMemory {
    std::map<shm::PoolId, memory::HostPool> pools;
    std::vector<memory::HostPool> slabs;
    bool has_arena = false;  // the slabs are one
  };
  // Once what was taken over has not ended this daemon.
  void HasServed();
  // Puts everything into the store again, which has lost it.
  void KeepAll();

  // --- sessions ----------------------------------------------------------------------------------
  // Opens a session for whoever is at the other end of `socket`: that of its predecessor, if it is
  // the successor of one. UNAVAILABLE while the predecessor lives. ABORTED: it was ended meanwhile.
  absl::StatusOr<SessionPtr> Open(const core::SessionSpec& spec, os::Peer peer,
                                  base::UniqueFd socket);
  // The client has been told: its session outlives the daemon from now on.
  void SetWelcomed(const SessionPtr& session);
  struct Closed {
    bool now = false;  // false: it had ended before
    Garbage garbage;   // for the caller to Destroy, now or later
  };
  // Nothing where another has succeeded it.
  [[nodiscard]] Closed Close(const SessionPtr& session, core::CloseReason reason);
  // The session with this token in hexadecimal; UNAUTHENTICATED if there is none. Notes that its
  // client was welcomed.
  absl::StatusOr<SessionPtr> Authenticate(const std::string& token_hex);
  std::vector<SessionPtr> AllSessions();
  size_t AttachedSessions();

  // Takes the memory back from whoever still holds it, and only then ends its charges: about 50
  // ms/GiB, so the event loop leaves it to the reaper's thread. The memory of a GPU comes back when
  // its agent says so, after this has returned.
  void Destroy(Garbage garbage);
  void DestroyLater(Garbage garbage) { reaper_.Destroy(std::move(garbage)); }

  // --- memory: for gRPC threads; as long as it takes to populate the memory ----------------------
  // `again`: the client asked an earlier daemon before, which may have done it, and heard nothing.
  // `number`: of the allocation, as the client counts them.
  absl::StatusOr<core::Allocation> Allocate(const SessionPtr& session,
                                            const std::vector<core::ChunkSpec>& specs,
                                            uint64_t number = 0, bool again = false);
  // None, where one of them may not be; but those before it, where the client begins to use one
  // during the call.
  absl::Status Free(const SessionPtr& session, std::vector<shm::ChunkId> chunks,
                    bool again = false);
  // Of what a predecessor left; see core::Engine.
  absl::StatusOr<core::Allocation> Claim(const SessionPtr& session,
                                         const std::vector<core::ChunkSpec>& specs,
                                         uint64_t number);
  absl::Status FreeOlder(const SessionPtr& session, uint64_t number);
  struct ArenaMade {
    uint64_t bytes = 0;
    uint32_t slabs = 0;
  };
  absl::StatusOr<ArenaMade> CreateArena(const SessionPtr& session, uint64_t bytes,
                                        bool again = false);

  // --- jobs: hub_jobs.cc -------------------------------------------------------------------------
  // See core::Engine.
  absl::StatusOr<core::JobStanding> Admit(const SessionPtr& session, const std::string& run,
                                          const core::RankAsk& ask, uint32_t weight);
  absl::Status ReleaseArena(const SessionPtr& session, bool again = false);
  // It stays so for the daemon's successors.
  void Drain(bool drained);
  // All jobs of that name; how many. NOT_FOUND, or FAILED_PRECONDITION where they cannot yield.
  absl::StatusOr<uint32_t> HoldJobs(const std::string& tenant, const std::string& job, bool hold);
  struct EndedJob {
    std::vector<shm::SessionId> sessions;  // all
    std::vector<shm::SessionId> closed;    // that have ended already
    uint64_t bytes = 0;
    Garbage garbage;  // for the caller to Destroy
  };
  // All sessions of that name. Those whose clients live are told so, and end with them; `now`: at
  // once.
  absl::StatusOr<EndedJob> EndJob(const std::string& tenant, const std::string& job, bool now);

  // --- plans: hub_plans.cc -----------------------------------------------------------------------
  // `plan`, and what it was made from: kept where there is room, for the daemon's successor and for
  // people. RESOURCE_EXHAUSTED when there is none for `table`, which evictions go by.
  absl::Status SetPlan(const SessionPtr& session, const core::NextUseTable& table,
                       const v1::Trace& trace, const v1::Plan& plan);

  // --- the fast path: for the event loop ---------------------------------------------------------
  enum class Pumped {
    kMore,     // stopped at its bound of work: call again soon
    kArmed,    // no request is left; the client will write the daemon's event
    kBlocked,  // the client does not read its responses: call again in a while
    kCorrupt,  // the ring contradicts itself: the session must be closed
    kEnded,
  };
  // Carries out requests of the session: at most 64, and no further one after half a millisecond.
  Pumped Pump(const SessionPtr& session);
  // Lets the engine do what has become due.
  void Tick();
  // Tells the client in which phase its session is, and ends so much of its connection, soon.
  void Tell(const SessionPtr& session, shm::Phase phase, Sleeper::End end);
  // When that will be next, in monotonic nanoseconds.
  std::optional<int64_t> NextTick();

  // Ends calls that are populating memory, with CANCELLED. They stay ended.
  void CancelPopulating() { cancelled_.store(true); }

  // Calls `read` with the engine and the sessions, under the mutex.
  template <typename Read>
  auto Inspect(Read read) {
    std::lock_guard<std::mutex> lock(mutex_);
    return read(static_cast<const core::Engine&>(*engine_), tables_.sessions);
  }

  // The same with the numbers of that moment, for the metrics.
  template <typename Read>
  auto Observe(Read read) {
    std::lock_guard<std::mutex> lock(mutex_);
    return read(static_cast<const core::Engine&>(*engine_), tables_.sessions, Numbers());
  }

  // See core::Engine::SetLimits.
  void SetLimits(const core::RunningLimits& limits);

  Limits& limits() const { return *options_.limits; }
  const os::Machine& machine() const { return options_.machine; }
  const gpus::Gpus* gpus() const { return options_.gpus; }
  bool huge_pages() const { return options_.huge_pages; }
  uint64_t daemon_epoch() const { return daemon_epoch_; }

 private:
  class Return;

  Hub(const HubOptions& options, base::UniqueFd manifest_fd, base::Mapping manifest_memory,
      core::Manifest manifest);

  // What Open does once it has let go of the mutex.
  absl::StatusOr<SessionPtr> KeepNew(SessionPtr session);

  // hub_restore.cc
  static absl::StatusOr<std::unique_ptr<Hub>> CreateNew(const HubOptions& options);
  static absl::StatusOr<std::unique_ptr<Hub>> TakeOver(const HubOptions& options, Keepsakes* kept);
  static absl::StatusOr<std::unique_ptr<Hub>> Adopted(const HubOptions& wanted, Keepsakes* kept);
  void RevokeAll();
  absl::StatusOr<core::SessionFacts> CheckKept(shm::SessionId id,
                                               const Keepsakes::OfSession& kept) const;
  absl::Status Adopt(shm::SessionId id, Keepsakes::OfSession* kept, Garbage* garbage);
  void GiveMemory(ClientSession* session, KeptMemory memory, Garbage* garbage);
  bool IsDrainNoted() const;
  void NoteDrain(bool drained) const;

  // hub_keep.cc
  void Keep(const std::string& name, int fd);
  void KeepSession(const ClientSession& session);
  // Each with its name; the session's descriptors.
  using Named = std::vector<std::pair<std::string, int>>;
  static Named SlabsToKeep(const ClientSession& session, const memory::DeviceArena& arena);
  Named AllToKeep(shm::SessionId id) const;  // under the mutex
  void KeepAgain(shm::SessionId id);

  // hub_plans.cc
  // Under the mutex; `uses` are those of `table`.
  absl::Status PutInForce(const SessionPtr& session, uint64_t table_bytes, core::PlanUses* uses,
                          std::shared_ptr<const KeptPlan>* kept);
  // Of what a predecessor kept, by number, the newest that is sound; the others go.
  void LoadPlan(const SessionPtr& session, std::map<uint64_t, base::UniqueFd> plans,
                Garbage* garbage);
  absl::Status LoadOnePlan(const SessionPtr& session, base::UniqueFd fd);

  // All under the mutex. hub_successors.cc:
  absl::Status ClosePredecessor(const core::SessionSpec& spec, Garbage* garbage);
  absl::StatusOr<SessionPtr> Reopen(shm::SessionId id, const core::SessionSpec& spec, os::Peer peer,
                                    base::UniqueFd socket, Garbage* garbage);
  absl::StatusOr<core::SessionBooks> MakeBooks(const ClientSession& session) const;

  // Work under the mutex that may be long, `slice` by slice until one says that it was the last.
  // The event loop takes the mutex between any two.
  template <typename Slice>
  void InSlices(Slice slice) {
    while (true) {
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (slice()) return;
      }
      LetTheLoopGoFirst();
    }
  }
  void LetTheLoopGoFirst() const;
  std::unique_lock<std::mutex> LockForTheLoop();
  absl::StatusOr<core::Allocation> EnterChunks(const SessionPtr& session,
                                               const core::Promise& promise, Garbage* made);
  absl::Status FreeInSlices(const SessionPtr& session, std::vector<shm::ChunkId> chunks);

  Closed CloseLocked(const SessionPtr& session, core::CloseReason reason);
  absl::StatusOr<SessionPtr> OpenNew(const core::SessionSpec& spec, os::Peer peer,
                                     base::UniqueFd socket);
  void Push(const std::vector<core::Outgoing>& out, std::vector<ClientSession*>* served);
  // Who is to be woken once the mutex is free: what a client does with its end of the wake-up must
  // not keep others waiting.
  using ToWake = std::vector<SessionPtr>;
  static void AddIfAsleep(ClientSession* session, ToWake* to_wake);
  void Deliver(const std::vector<core::Outgoing>& out, ToWake* to_wake);
  void FlushOthers(core::Time now, ToWake* to_wake);
  Pumped PumpLocked(ClientSession* session, ToWake* to_wake);
  void Wake(const ToWake& to_wake);  // without the mutex
  // `died`: the client may use its memory until its process has ended.
  void Collect(const core::Releases& releases, bool died, Garbage* garbage);
  void Count(const ClientSession& session);
  HubNumbers Numbers();
  void CountAllocation(shm::Tier tier, core::Time began);
  // What the session's pools and slabs have in common: a name to be continued, and the NUMA node.
  memory::PoolOptions PoolOptionsOf(const ClientSession& session);
  // Make, pass and enter what was promised. On failure *made holds what exists already.
  absl::StatusOr<core::Allocation> MakePool(const SessionPtr& session, const core::Promise& promise,
                                            Garbage* made);
  absl::StatusOr<ArenaMade> MakeArena(const SessionPtr& session, const core::Promise& promise,
                                      Garbage* made);
  absl::Status MakeSlabs(const ClientSession& session, uint64_t bytes, Garbage* made);
  absl::Status ForgetAllocation(const SessionPtr& session, uint64_t number);
  void Abandon(const core::Promise& promise, Garbage garbage);
  // To the client; what it sends may take as long as the client likes: without the mutex.
  struct Passed {
    shm::Memory message = {};
    base::UniqueFd fd;
  };
  static Passed PoolToPass(shm::PoolId id, const memory::HostPool& pool);
  static std::vector<Passed> ArenaToPass(const memory::DeviceArena& arena);
  static absl::Status Pass(const ClientSession& session, std::span<const Passed> passed);

  const HubOptions options_;
  holder::DescriptorStore* const store_;
  std::atomic<bool> keeping_failed_{false};  // said so already
  std::atomic<uint64_t> times_kept_{0};      // all of it, anew
  const base::UniqueFd manifest_fd_;
  base::UniqueFd node_fd_;
  base::Mapping node_memory_;                  // none: it is another release's
  std::unique_ptr<os::CrashNote> crash_note_;  // in node_memory_
  const base::Mapping manifest_memory_;
  const uint64_t daemon_epoch_;
  InFlight in_flight_;
  std::atomic<bool> cancelled_{false};
  memory::Admission admission_;
  std::mutex mutex_;
  std::atomic<int> loop_waits_{0};  // for mutex_
  SharedTables tables_;             // guarded by mutex_
  // Sessions whose rings were full when another's request brought them a response: they may have no
  // request of their own that would make room. Looked at again at this time.
  std::set<shm::SessionId> unflushed_;    // guarded by mutex_
  core::Time flush_at_;                   // guarded by mutex_
  core::Duration flush_pause_;            // guarded by mutex_
  std::unique_ptr<core::Engine> engine_;  // guarded by mutex_
  metrics::SessionCounters counters_;     // guarded by mutex_
  // Guarded by mutex_: how long it took to make memory.
  std::map<shm::Tier, core::TimeHistogram> allocations_ = {{shm::Tier::kHost, {}},
                                                           {shm::Tier::kDevice, {}}};
  core::SharedLimit plan_memory_;  // guarded by mutex_; in bytes
  metrics::TakeOverReading take_over_;
  Waker waker_;
  Reaper reaper_;  // last: its thread uses the others
};

// The time the engine is handed.
core::Time Now();

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_HUB_H_
