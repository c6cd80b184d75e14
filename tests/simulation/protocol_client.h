// A client of the simulated world: what it has mapped, its port, and what it wants of its chunks.
#ifndef GEMINID_TESTS_SIMULATION_PROTOCOL_CLIENT_H_
#define GEMINID_TESTS_SIMULATION_PROTOCOL_CLIENT_H_

#include <poll.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "client/src/chunk_table.h"
#include "client/src/request_port.h"
#include "client/src/segments.h"
#include "client/src/transfers.h"
#include "client/src/wire.h"
#include "tests/simulation/protocol_simulation.h"
#include "tests/simulation/simulated_device.h"

namespace geminid::simulation {

class ProtocolSimulation::Client {
 public:
  Client(ProtocolSimulation* world, int32_t rank) : world_(world), rank_(rank) {}
  ~Client() { End(); }

  // A new session, with chunks of which nothing is on the device.
  void Connect();
  bool connected() const { return port_ != nullptr; }
  // Its connection has been closed.
  bool HungUp() const {
    pollfd attach = {attach_.get(), POLLRDHUP, 0};
    return ::poll(&attach, 1, 0) != 0;
  }
  // It goes, and every answer that is due comes with its port's end.
  void End();

  shm::SessionId id() const { return id_; }
  void Act();
  bool StepPort() { return port_->Step(); }
  void StepLink();
  // While there is no daemon: anything but a call.
  void ActAlone();
  bool IsIdle() const { return due_ == 0 && links_idle(); }
  // At any instant, as another thread of the client: no request.
  void TakeOrReleaseLease();
  void ReleaseAll();
  void SaveAll();
  void CheckHomes();

 private:
  enum class Doing { kNothing, kHolds, kLoads, kMarks, kSaves, kDrops };
  struct Chunk {
    ChunkId id = kNoChunk;
    std::byte* home = nullptr;
    uint64_t value = 0;  // of all its words, in the newest copy
    bool dirty = false;  // its home has older ones
    Doing doing = Doing::kNothing;
    bool leased = false;
    shm::StateWord held{};
    bool lease_is_late = false;  // a mutant's: nobody sees it yet
  };

  bool links_idle() const {
    return device_->link(device::Direction::kHostToDevice).idle() &&
           device_->link(device::Direction::kDeviceToHost).idle();
  }
  std::atomic<uint64_t>& Lease(const Chunk& chunk) const {
    return segments_.client()->lease[Index(chunk.id)];
  }
  shm::StateWord StateOf(const Chunk& chunk) const {
    return shm::StateWord::Decode(segments_.state()->state[Index(chunk.id)].load());
  }
  std::byte* OnDevice(const Chunk& chunk) const {
    return device_->base() + chunk.held.device_offset();
  }
  void ActOnChunk();
  void Take(Chunk* chunk);
  void Release(Chunk* chunk);
  void Check(const Chunk& chunk);
  void Load(Chunk* chunk);
  void Change(Chunk* chunk);
  void Save(Chunk* chunk, bool drops);
  void Drop(Chunk* chunk);
  void AllocateOrFree();
  // Of what is answered once: `then` is told how it ended.
  std::function<void(const absl::Status&)> Due(Chunk* chunk,
                                               std::function<void(const absl::Status&)> then);
  void Transfer(Chunk* chunk, const TransferSpec& spec,
                std::function<void(const absl::Status&)> then);

  ProtocolSimulation* const world_;
  const int32_t rank_;
  shm::SessionId id_{};
  base::UniqueFd attach_;
  Segments segments_;
  base::Mapping arena_;
  std::unique_ptr<SimulatedDevice> device_;
  std::unique_ptr<ChunkTable> table_;
  std::unique_ptr<RequestPort> port_;
  std::unique_ptr<Transfers> transfers_;
  std::array<Chunk, kChunks> chunks_;
  std::vector<shm::ChunkId> extra_;
  uint64_t allocations_ = 0;
  uint64_t next_value_ = 1;
  uint64_t due_ = 0;  // answers
};

}  // namespace geminid::simulation

#endif  // GEMINID_TESTS_SIMULATION_PROTOCOL_CLIENT_H_
