// A deterministic world around one engine: clients that are honest, wrong, hostile, slow or dead.
//
// The daemon dies, too: between two calls, or within a call at any look at its tables or any store
// into the manifest or the books. Another engine takes over from that memory, or dies at any store
// while it does. Meanwhile clients continue: they finish copies, write completion words, post
// requests, take and release leases, and die. A client in a call repeats it.
//
// Some sessions are ranks of jobs, which wait for admission, yield, and are preempted and held.
// Memory that was promised to a job or guaranteed to a tenant must be available whenever they ask
// for it.
//
// The model has books of its own from the words and responses that a client can see, and never asks
// the engine. Everything follows from the seed.
#ifndef GEMINID_TESTS_DAEMON_CORE_ENGINE_SIMULATION_H_
#define GEMINID_TESTS_DAEMON_CORE_ENGINE_SIMULATION_H_

#include <array>
#include <bitset>
#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mapping.h"
#include "daemon/core/engine/engine.h"
#include "tests/daemon/core/engine/store_death.h"

namespace geminid::core {

struct SimulationCounts {
  uint64_t tickets = 0;
  uint64_t evictions = 0;
  uint64_t arenas_refused = 0;   // their device was full
  uint64_t sessions_beside = 0;  // opened on another device than the first
  uint64_t cancelled_evictions = 0;
  uint64_t errors = 0;
  uint64_t kills = 0;
  uint64_t kept = 0;
  uint64_t reopened = 0;
  uint64_t lost = 0;  // chunks whose client died while it changed the only copy
  uint64_t restarts = 0;
  uint64_t restarts_within = 0;  // of the daemon, within a call
  uint64_t deaths_in_allocations = 0;
  uint64_t deaths_in_frees = 0;
  uint64_t deaths_in_ends = 0;  // of the daemon, in the ends of sessions and while it retains them
  uint64_t slices = 0;          // in which sessions were closed
  uint64_t deaths_after_answers = 0;
  uint64_t died_without_daemon = 0;
  uint64_t deaths_at_stores = 0;
  uint64_t deaths_in_restarts = 0;
  uint64_t write_backs = 0;  // after which a dirty chunk was clean
  uint64_t jobs_undone = 0;
  uint64_t jobs_preempted = 0;  // counted when their clients saw it
  uint64_t job_arenas = 0;      // made
  uint64_t job_yields = 0;      // given back
};

class Simulation : private Tables {
 public:
  explicit Simulation(uint32_t seed);
  ~Simulation() override;

  // One random action, then every invariant.
  void Step();
  // Completes everything in flight, then ends every session. Nothing may be left.
  void Finish();
  // The first violated invariant; empty: none was violated.
  const std::string& violation() const { return violation_; }
  const SimulationCounts& counts() const { return counts_; }

 private:
  static constexpr int kMaxSessions = 3;
  static constexpr uint32_t kMaxChunks = 8;
  static constexpr uint64_t kArenaSlots = 12;
  static constexpr int kCells = 16;  // a write-back is tracked in this many parts of a chunk
  static constexpr uint32_t kRecords = 64;
  static constexpr uint64_t kHostBytes = uint64_t{1} << 18;
  static constexpr uint64_t kPriorities = 3;
  static constexpr uint64_t kArenaBytes = kArenaSlots * shm::kSlotBytes;

  struct ChunkModel {
    bool exists = false;
    bool has_home = false;
    ChunkKind kind = ChunkKind::kNone;
    uint64_t bytes = 0;
    PoolId pool = kNoPool;
    uint64_t home_offset = 0;
    shm::StateWord word;
    ChunkState state = ChunkState::kFree;
    bool dirty = false;
    uint64_t dirty_epoch = 0;
    std::bitset<kCells> saved;  // over-approximated if a part is not a whole number of cells
    int device_pins = 0;
    uint64_t lease = 0;
    bool held = false;       // the client got the lease, and relies on it
    bool home_torn = false;  // was being written when its client died
    bool lost = false;       // no copy has the content that its client meant
  };
  struct TransferModel {
    shm::Request request;
    uint64_t dirty_epoch = 0;
    Direction direction = Direction::kNone;
    bool granted = false;
    shm::Response ticket{};
  };
  // Which chunks may leave the device at the moment, beside those that no client needs.
  enum class Leaving {
    kNothing,
    kFreed,   // those that the client frees: dirty ones too
    kUnused,  // the client is dead: all but only copies
    kAll,     // the session ends: all
  };
  struct SessionModel {
    SessionId id{};
    SessionSpec spec;
    DeviceIndex device{};
    bool kept = false;
    bool dead = false;  // its client is dead, and no daemon has noticed yet
    Leaving leaving = Leaving::kNothing;
    std::array<ChunkModel, kMaxChunks> chunks;
    std::map<PoolId, uint64_t> pools;
    std::array<uint64_t, shm::kCompletionWords> completion{};
    std::map<uint64_t, TransferModel> transfers;  // by request id, until done
    std::map<uint64_t, uint64_t> tickets;         // ticket to request id
    uint64_t workspace_bytes = 0;
    bool has_arena = true;
    // Of the rank of a job.
    bool asks = false;
    std::string run;
    RankRequest ask;
    bool admitted = false;  // its client was told so, now or before it yielded
    bool asked_to_yield = false;
  };

  // Tables, as the engine sees them.
  void PublishYield(SessionId session, bool asked) override;
  void PublishState(SessionId session, ChunkId chunk, uint64_t word) override;
  uint64_t ReadLease(SessionId session, ChunkId chunk) override;
  uint64_t ReadCompletion(SessionId session, uint16_t index) override;

  // A point at which the daemon may die.
  struct Crash : std::exception {};
  void MayCrash();
  // Carries out a call of the engine. False: the daemon died in the call, and the next one has
  // taken over. `in_doubt`: the session whose ring has the request that the call carries out.
  bool Survives(const std::function<void()>& call, SessionModel* in_doubt = nullptr);
  void Restart(SessionModel* in_doubt);
  void ActWithoutDaemon(SessionModel* session);
  void DropPoolsOfNobody(SessionModel* session);
  bool IsKept(SessionId session) const;
  void TakeOver(SessionModel* in_doubt, std::vector<Outgoing>* out);
  std::span<std::byte> ManifestBytes() const;
  InheritedSession Inherit(SessionModel* session, bool in_doubt);
  void ReceiveAgain(const std::vector<Outgoing>& out);

  // Actions.
  void OpenSession();
  DeviceIndex GivenDevice(const SessionSpec& spec) const;
  uint64_t ArenaBytesOn(DeviceIndex device) const;
  uint64_t PromisedBytesOn(DeviceIndex device) const;
  void BeginBooks(SessionModel* session);
  void Allocate(SessionModel* session);
  void Enter(SessionModel* session, const Allocation& allocation,
             const std::vector<ChunkSpec>& specs);
  void ForgetAllocation(SessionModel* session, uint64_t number);
  void Free(SessionModel* session);
  void Free(SessionModel* session, std::vector<ChunkId> ids);
  void Remove(SessionModel* session, ChunkId chunk);
  void Close(SessionModel* session, CloseReason reason);
  bool BeginClose(SessionModel* session, CloseReason reason);
  bool ContinueClose(SessionModel* session);
  void ActBeside(SessionId session);
  void BuryDead();
  void SendPosted();
  void Keep(SessionModel* session);
  void AdvanceTime();
  void Reopen(SessionModel* session);
  void TakeOrReleaseLease(SessionModel* session);
  void SetPlan(SessionModel* session);
  void CompleteTicket(SessionModel* session);
  void SendSensible(SessionModel* session);
  void SendGarbage(SessionModel* session);
  void SendTransfer(SessionModel* session);
  void SendTransition(SessionModel* session);

  // Jobs: simulation_jobs.cc.
  void JoinRun(SessionSpec* spec, RankRequest* ask);
  void ActAsJob(SessionModel* session);
  void AskAdmission(SessionModel* session);
  void Yield(SessionModel* session);
  void HoldSome();
  uint64_t HostBytesOf(const SessionModel& session) const;
  uint64_t HostBytesOfTenant(const std::string& tenant) const;
  void CheckRefusal(const SessionModel& session, const std::vector<ChunkSpec>& specs);
  void CheckLastIsAdmitted();

  // Sends one request and handles its answers.
  shm::Request Make(shm::RequestOp op);
  void Send(SessionModel* session, const shm::Request& request);
  void DieAfterAnswer(SessionModel* session, const shm::Request& request, bool answered);
  void Receive(const std::vector<Outgoing>& out, SessionModel* sender, const shm::Request* request);
  void Answer(SessionModel* session, const Outgoing& outgoing, const shm::Request* request);
  void TakeTicket(SessionModel* session, const shm::Response& response);
  void Accept(SessionModel* session, uint64_t request_id);
  bool Completes(const SessionModel& session, const shm::Request& request) const;
  void Settle(SessionModel* session, uint64_t ticket);
  void Apply(SessionModel* session, const shm::Request& request);
  void ApplyTransition(ChunkModel* chunk, uint64_t argument);
  void Collect(const Releases& releases);
  void GiveBack();
  void EndMaking();
  uint64_t ChargedBytes(Account account) const;

  // Invariants.
  static bool IsChanging(const ChunkModel& chunk);
  void Judge(SessionModel* session);
  static bool IsLegalStep(const shm::StateWord& from, const shm::StateWord& to, bool ended);
  void CheckStep(const ChunkModel& chunk, const shm::StateWord& next, Leaving leaving);
  void CheckExtents(const SessionModel& session);
  void CheckFlights();
  void CheckLinks(const std::vector<std::array<InFlight, kDirections>>& links);
  void CheckLedger();
  void Violate(const std::string& what);

  uint64_t Pick(uint64_t below) { return below == 0 ? 0 : random_() % below; }
  bool Chance(int percent) { return Pick(100) < static_cast<uint64_t>(percent); }
  SessionModel* PickSession(bool kept);
  ChunkModel* FindChunk(SessionModel* session, ChunkId chunk);
  ChunkId PickChunk() { return ChunkId{static_cast<uint32_t>(Pick(kMaxChunks))}; }

  std::mt19937_64 random_;
  EngineOptions options_;
  StoreDeath death_;
  base::Mapping manifest_;
  bool restarting_ = false;
  int crash_in_ = -1;  // looks until the death; negative: no death
  std::map<SessionId, base::Mapping> books_;
  std::unique_ptr<Engine> engine_;
  std::map<SessionId, SessionModel> sessions_;
  Time now_ = Time::FromNanoseconds(1);
  uint64_t next_request_ = 1;
  // Memory that is being made or destroyed, and is charged to no session.
  struct ChargeModel {
    Account account;
    uint64_t bytes = 0;
    SessionId session = kNoSession;  // the session for which it is being made
    std::vector<ChunkSpec> specs{};
    bool is_promise = false;
    PoolId pool = kNoPool;
    uint64_t number = 0;  // of the allocation
    std::string tenant{};
    SessionId holder = kNoSession;  // the session whose promised memory it was
  };
  struct Run {
    std::string tenant;
    RankRequest ask;
  };
  std::optional<Run> half_run_;  // a run whose second rank is to come
  uint64_t runs_ = 0;
  std::map<ChargeId, ChargeModel> charges_;
  uint64_t allocations_ = 0;
  // The session whose client waits for an answer.
  SessionModel* in_call_ = nullptr;
  std::vector<std::pair<SessionId, shm::Request>> posted_;  // while there was no daemon
  std::set<uint64_t> unanswered_;
  std::set<uint64_t> ticket_ids_;
  bool late_drops_ = false;  // some transfer asked for a drop that may still be due
  SimulationCounts counts_;
  std::string violation_;
};

}  // namespace geminid::core

#endif  // GEMINID_TESTS_DAEMON_CORE_ENGINE_SIMULATION_H_
