// The daemon as a client meets it, in one thread and without sockets: its engine, its sessions with
// their rings, and what a holder keeps for its successor, all of them real. What the hub does
// between them, with threads and a mutex, is done here in the same order, and it may die at each of
// these steps and wherever the engine looks at its tables.
#ifndef GEMINID_TESTS_SIMULATION_SIMULATED_DAEMON_H_
#define GEMINID_TESTS_SIMULATION_SIMULATED_DAEMON_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mapping.h"
#include "base/unique_fd.h"
#include "daemon/core/engine/engine.h"
#include "daemon/holder/descriptor_table.h"
#include "daemon/service/heritage/shortage.h"
#include "daemon/service/sessions/session_hub.h"

namespace geminid::simulation {

// What outlives a daemon.
struct Node {
  holder::DescriptorTable table;          // the holder's
  std::map<std::string, uint64_t> pools;  // host memory that is there, by name
  service::Limits limits{config::TenantShares()};
  service::DescriptorsInFlight in_flight{&limits};

  uint64_t PoolBytes() const;
};

struct DaemonOptions {
  core::EngineOptions engine;
  // Called at each step. What it throws is the daemon's death.
  std::function<void()> on_step;
  // Called when a request is answered and not yet noted as done.
  std::function<void()> on_answered;
  // Called once a daemon knows what an earlier one left, and begins to take it over.
  std::function<void()> on_take_over;
  // Waits while the system lacks descriptors.
  service::Shortage::Pause pause;
  // Mutants.
  bool loses_resends = false;  // tickets that earlier daemons gave are not sent again
  bool credits_early = false;  // a charge ends before its memory is gone
  // The request at the head of a ring is carried out, although it was answered before.
  bool repeats_answered = false;
};

class SimulatedDaemon {
 public:
  SimulatedDaemon(const DaemonOptions& options, Node* node);

  // Takes over what an earlier one left, or begins.
  absl::Status Start();

  // A session with an arena, welcomed and kept.
  absl::StatusOr<service::SessionPtr> Open(const core::SessionSpec& spec, base::UniqueFd socket,
                                           uint64_t arena_bytes);
  // Null: it is none, or has ended.
  service::SessionPtr Find(shm::SessionId session) const;
  const base::UniqueFd& SlabOf(shm::SessionId session) const { return slabs_.at(session); }

  // As the calls over gRPC; see service::SessionHub.
  absl::StatusOr<core::Allocation> Allocate(shm::SessionId session,
                                            const std::vector<core::ChunkSpec>& specs,
                                            uint64_t number, bool again);
  absl::Status Free(shm::SessionId session, std::vector<shm::ChunkId> chunks, bool again);
  // Ends it for good.
  absl::Status Close(shm::SessionId session);

  // Carries out the next request of the session's ring. False: there is none, or no room to answer.
  bool Pump(shm::SessionId session);
  // Some memory that nobody has any more is destroyed. False: there is none.
  bool Destroy();
  // The holder has died, and there is another, which has nothing.
  void KeepAll();

  const core::Engine& engine() const { return *engine_; }
  uint64_t evictions() const { return engine_ == nullptr ? 0 : engine_->counters().evictions; }

 private:
  struct Garbage {
    std::vector<std::string> pools;
    std::vector<core::ChargeId> charges;
  };
  // The client's leases and the daemon's looks at them meet here.
  class Tables final : public service::SharedTables {
   public:
    explicit Tables(const std::function<void()>* on_step) : on_step_(on_step) {}
    void PublishState(shm::SessionId session, shm::ChunkId chunk, uint64_t word) override;
    uint64_t ReadLease(shm::SessionId session, shm::ChunkId chunk) override;
    uint64_t ReadCompletion(shm::SessionId session, uint16_t index) override;

   private:
    const std::function<void()>* const on_step_;
  };

  void Step() { options_.on_step(); }
  void Put(const std::string& name, int fd);
  void Remove(const std::string& name);
  void Keep(const service::ClientSession& session);
  absl::Status Begin();
  absl::Status TakeOver(service::InheritedDescriptors* kept);
  absl::Status Adopt(shm::SessionId id, service::InheritedDescriptors::OfSession* kept);
  absl::StatusOr<service::SessionPtr> AdoptClient(const core::SessionFacts& facts,
                                                  service::InheritedDescriptors::OfSession* kept);
  absl::StatusOr<core::Allocation> MakePool(shm::SessionId id, const core::Promise& promise);
  void GiveUp(const service::InheritedDescriptors::OfSession& kept);
  void Deliver(const std::vector<core::Outgoing>& out);
  void Collect(const core::Releases& releases);

  const DaemonOptions options_;
  Node* const node_;
  Tables tables_;
  base::UniqueFd manifest_fd_;
  base::Mapping manifest_memory_;
  std::unique_ptr<core::Engine> engine_;
  std::map<shm::SessionId, base::UniqueFd> slabs_;
  std::deque<Garbage> garbage_;
};

}  // namespace geminid::simulation

#endif  // GEMINID_TESTS_SIMULATION_SIMULATED_DAEMON_H_
