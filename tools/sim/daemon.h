// The daemon of one simulated node: the real engine, driven as the daemon's main loop drives it.
#ifndef GEMINID_TOOLS_SIM_DAEMON_H_
#define GEMINID_TOOLS_SIM_DAEMON_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/core/engine/engine.h"
#include "tools/sim/event_queue.h"

namespace geminid::sim {

struct DaemonOptions {
  uint64_t host_bytes = 0;
  uint64_t device_bytes = 0;
  uint32_t sessions = 1;
  uint32_t chunk_records = 0;
  double request_seconds = 0;
  core::TransferLimits transfers;
};

class Daemon final : private core::Tables {
 public:
  using Receive = std::function<void(const core::Outgoing&)>;

  // `events` outlives it.
  static absl::StatusOr<std::unique_ptr<Daemon>> Create(EventQueue* events,
                                                        const DaemonOptions& options);

  // --- control: at once, since no training step waits for it
  absl::StatusOr<core::SessionId> Open(const core::SessionSpec& spec, uint64_t arena_bytes,
                                       Receive receive);
  absl::StatusOr<core::Allocation> Allocate(core::SessionId session,
                                            const std::vector<core::ChunkSpec>& specs);
  // The process died; the daemon retains its memory.
  absl::Status Kill(core::SessionId session);
  absl::Status Reopen(core::SessionId session, const core::SessionSpec& spec, Receive receive);

  // --- the fast path: requests reach the engine, and answers the client, after request_seconds
  void Send(core::SessionId session, const shm::Request& request);
  // The words that the client writes to shared memory, and reads from it.
  void WriteCompletion(core::SessionId session, uint16_t index, uint64_t ticket);
  void WriteLease(core::SessionId session, core::ChunkId chunk, uint64_t word);
  shm::StateWord State(core::SessionId session, core::ChunkId chunk);

  // Between Stop and Start no request is served; Start serves those that wait. The engine's state
  // is in memory that outlives the daemon, so nothing else changes.
  void Stop() { running_ = false; }
  void Start();

  const core::Engine& engine() const { return *engine_; }

 private:
  struct alignas(64) Block {
    std::byte bytes[64];
  };
  struct Client {
    Receive receive;
    uint64_t incarnation = 0;  // answers to an earlier process are lost
    std::map<core::ChunkId, uint64_t> states;
    std::map<core::ChunkId, uint64_t> leases;
    std::array<uint64_t, shm::kCompletionWords> completions{};
  };
  struct QueuedRequest {
    core::SessionId session{};
    uint64_t incarnation = 0;
    shm::Request request{};
  };

  Daemon(EventQueue* events, const DaemonOptions& options);
  void PublishState(core::SessionId session, core::ChunkId chunk, uint64_t word) override;
  uint64_t ReadLease(core::SessionId session, core::ChunkId chunk) override;
  uint64_t ReadCompletion(core::SessionId session, uint16_t index) override;
  void PublishYield(core::SessionId, bool) override {}  // no simulated job asks for admission
  void Handle(const QueuedRequest& arrived);
  void Deliver(const std::vector<core::Outgoing>& out);
  void GiveBack(const core::Releases& releases);
  void ScheduleTick();
  uint64_t IncarnationOf(core::SessionId session) { return clients_[session].incarnation; }

  EventQueue* const events_;
  const double request_seconds_;
  std::vector<Block> blocks_;
  std::unique_ptr<core::Engine> engine_;
  std::map<core::SessionId, Client> clients_;
  bool running_ = true;
  std::vector<QueuedRequest> waiting_;  // while stopped
  std::optional<core::Time> tick_at_;
};

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_DAEMON_H_
