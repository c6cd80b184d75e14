// The result of the engine's decisions: which chunks move, and in which order.
#ifndef GEMINID_CLIENT_ZERO_CORE_MOVE_H_
#define GEMINID_CLIENT_ZERO_CORE_MOVE_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace geminid::zero {

struct Move {
  enum class Kind {
    kGather,  // onto the device; a collective
    kOpen,    // an extent of zeros, for a gradient
    kReduce,  // the gradient leaves the device; a collective
    kDrop,    // the device's copy is given up
    kPark,    // an incomplete gradient makes room; its contents are stored on the host
    kReturn,  // a parked gradient comes back
  };
  Kind kind = Kind::kGather;
  uint32_t chunk = 0;
  std::optional<uint64_t> offset = {};  // where the plan wants it; nullopt: wherever there is room
  // The moment that will need the chunk; nullopt: the current moment waits for it.
  std::optional<uint32_t> due = {};
  // A gather from the copies of this host's ranks alone (Director::Chunk::copied).
  bool within_host = false;

  bool makes_room() const { return kind == Kind::kDrop || kind == Kind::kPark; }

  friend bool operator==(const Move&, const Move&) = default;
};

using Moves = std::vector<Move>;

// The first load. Moves that make room come before the loads.
inline Moves::const_iterator LoadsOf(const Moves& moves) {
  return std::ranges::find_if(moves, [](const Move& move) { return !move.makes_room(); });
}

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_MOVE_H_
