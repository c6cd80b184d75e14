// Chunks on the device: which of them operators hold, and until when streams of the trainer use
// them. Tells the session each chunk's state.
#ifndef GEMINID_CLIENT_ZERO_RESIDENCY_OPERATOR_LEASES_H_
#define GEMINID_CLIENT_ZERO_RESIDENCY_OPERATOR_LEASES_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/device/device.h"
#include "geminid/session.h"
#include "geminid/stream.h"

namespace geminid::zero {

// Not thread-safe; the mover's lock guards it. Returns its requests to the session, so that the
// caller can watch them without the lock.
class OperatorLeases {
 public:
  using Requests = std::vector<Pending>;
  // `chunks`: the session's. `names`: of chunks, for people. All arguments outlive this object.
  OperatorLeases(Session* session, const std::vector<ChunkId>& chunks,
                 const std::function<std::string(uint32_t chunk)>& names)
      : session_(*session), chunks_(chunks), names_(names), usages_(chunks.size()) {}

  // --- a stay lasts from one arrival to the drop or reduction that ends it ---

  // Ask: the chunk was requested. Arrive: the chunk has come; the gates of that arrival open.
  void Ask(uint32_t chunk) { ++usages_[chunk].asked; }
  absl::Status Arrive(uint32_t chunk, Requests* requests);
  bool HasArrived(uint32_t chunk) const { return usages_[chunk].arrived == usages_[chunk].asked; }
  // Later operations of operators belong to the next stay.
  void EndForOperators(uint32_t chunk) { usages_[chunk].stays.emplace_back(); }
  // The chunk is to leave. False: it leaves later, when streams have passed it (see Reach).
  bool Leave(uint32_t chunk);
  void BecomeReduced(uint32_t chunk, Requests* requests);

  // An operator holds the chunk, from now on or from its arrival. INTERNAL: it cannot be leased.
  absl::Status Hold(uint32_t chunk, Requests* requests);
  // No operator holds the chunk any more. `rest`: the state that it is left in.
  void Release(uint32_t chunk, ChunkState rest, Requests* requests);

  // --- points on streams ---

  // The streams that Join has named since the last ForgetStreams.
  void Join(Stream* stream);
  const std::vector<Stream*>& streams() const { return streams_; }
  void ForgetStreams() { streams_.clear(); }
  uint64_t AddPoint();
  bool IsOpen(uint64_t point) const { return open_points_.contains(point); }
  bool NoPointIsOpen() const { return open_points_.empty(); }
  // Work before the point uses the chunk.
  void NoteUse(uint32_t chunk, uint64_t point) { usages_[chunk].stays.back().points.insert(point); }
  // The stream has reached the point. Returns the chunks that leave now.
  std::vector<uint32_t> Reach(uint64_t point, Requests* requests);
  // Whether no work uses the chunk: in its newest stay (Unused), or in its oldest (OldestUnused).
  bool Unused(uint32_t chunk) const { return usages_[chunk].stays.back().points.empty(); }
  bool OldestUnused(uint32_t chunk) const { return usages_[chunk].stays.front().points.empty(); }

  // --- gates; each opens when its chunk arrives, and all open after a failure ---

  void AddGate(uint32_t chunk, std::shared_ptr<device::Gate> gate) {
    gates_.push_back({chunk, usages_[chunk].asked, std::move(gate)});
  }
  bool AnyGate() const { return !gates_.empty(); }
  uint32_t FirstGate() const { return gates_.front().chunk; }
  void OpenGates() {
    for (const ArrivalGate& gate : std::exchange(gates_, {})) gate.gate->Open();
  }

 private:
  struct Stay {
    bool begun = false;    // operators have held it and not given it back, or will hold it
    bool held = false;     // by an operator
    bool leaving = false;  // leaves when `points` are reached
    ChunkState rest = ChunkState::kHold;
    std::optional<Lease> lease;
    std::set<uint64_t> points;  // in streams whose work uses the chunk
  };
  struct Usage {
    ChunkState told = ChunkState::kFree;
    std::deque<Stay> stays = std::deque<Stay>(1);  // the last one is for operators to come
    uint64_t asked = 0;                            // arrivals
    uint64_t arrived = 0;
  };
  // Opens with the chunk's arrival of this number.
  struct ArrivalGate {
    uint32_t chunk = 0;
    uint64_t arrival = 0;
    std::shared_ptr<device::Gate> gate;
  };

  void Tell(uint32_t chunk, ChunkState to, Requests* requests);
  absl::Status Take(uint32_t chunk, Stay* stay, Requests* requests);
  void GiveBack(uint32_t chunk, Stay* stay, Requests* requests);

  Session& session_;
  const std::vector<ChunkId>& chunks_;
  const std::function<std::string(uint32_t chunk)>& names_;
  std::vector<Usage> usages_;  // by chunk
  std::vector<ArrivalGate> gates_;
  std::vector<Stream*> streams_;
  std::set<uint64_t> open_points_;
  uint64_t next_point_ = 0;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_RESIDENCY_OPERATOR_LEASES_H_
