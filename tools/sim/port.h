// A simulated client's connection to its daemon: requests, and copies under tickets.
#ifndef GEMINID_TOOLS_SIM_PORT_H_
#define GEMINID_TOOLS_SIM_PORT_H_

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tools/sim/daemon.h"
#include "tools/sim/process.h"

namespace geminid::sim {

// One copy between a home and the device, as the client's TransferSpec.
struct CopySpec {
  core::ChunkId source{};
  core::ChunkId destination{};
  uint64_t source_offset = 0;
  uint64_t destination_offset = 0;
  uint64_t bytes = 0;
  core::Priority priority = core::Priority::kNormal;
  core::TransferCause cause = core::TransferCause::kDemand;
  std::optional<uint64_t> device_offset{};  // set: first give the destination an extent there
  std::string name;                         // on the timeline
};

// The client's side of the protocol. Each piece of a copy waits for a ticket; the copy stream of
// its direction executes one piece after another and reports each one done. An error from the
// daemon fails the simulation: a correct client gets none.
class Port {
 public:
  // Both outlive it. The process's session must have `receive` set to Receive.
  Port(Process* process, Daemon* daemon) : process_(process), daemon_(daemon) {}

  void SetSession(core::SessionId session) { session_ = session; }
  core::SessionId session() const { return session_; }
  void Receive(const core::Outgoing& outgoing);

  // `done` may be null: no answer is asked for.
  void Ask(shm::RequestOp op, core::ChunkId chunk, uint64_t argument, std::function<void()> done);
  void Reserve(uint64_t bytes, std::function<void()> done);
  void Copy(CopySpec spec, std::function<void()> done);

  // Takes the lease of a resident chunk, as the fast path does. False: the chunk is not resident.
  bool Lease(core::ChunkId chunk);
  void Release(core::ChunkId chunk) { daemon_->WriteLease(session_, chunk, 0); }

 private:
  struct ActiveCopy {
    CopySpec spec;
    uint64_t asked_bytes = 0;
    int parts = 0;  // a piece waiting for its ticket, and pieces being copied
    std::function<void()> done;
  };
  struct Piece {
    std::shared_ptr<ActiveCopy> copy;
    shm::Response ticket{};
  };
  struct Stream {
    std::deque<Piece> queue;
    bool busy = false;
  };

  shm::Request MakeRequest(shm::RequestOp op);
  void AskForNextPiece(const std::shared_ptr<ActiveCopy>& copy);
  void OnTicket(const std::shared_ptr<ActiveCopy>& copy, const shm::Response& ticket);
  void RunStream(core::Direction direction);
  void OnCopied(const Piece& piece);

  Process* const process_;
  Daemon* const daemon_;
  core::SessionId session_{};
  uint64_t next_request_ = 1;
  std::map<uint64_t, std::function<void(const shm::Response&)>> answers_;
  std::array<Stream, core::kDirections> streams_;
};

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_PORT_H_
