// What the engine's decisions come to: chunks that are to move, in this order.
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
    kReduce,  // its gradient leaves; a collective
    kDrop,    // the device copy is given up
    kPark,    // a gradient that is not complete makes way, its contents kept
    kReturn,  // and comes back
  };
  Kind kind = Kind::kGather;
  uint32_t chunk = 0;
  std::optional<uint64_t> offset = {};  // where the plan wants it; none: wherever there is room
  // The moment that will need it; none: the one that waits for it now.
  std::optional<uint32_t> due = {};
  // A gather of weights that the ranks of each host have together (Director::Chunk::copied).
  bool within_host = false;

  bool makes_room() const { return kind == Kind::kDrop || kind == Kind::kPark; }

  friend bool operator==(const Move&, const Move&) = default;
};

using Moves = std::vector<Move>;

// Where loads begin: moves that make room come first.
inline Moves::const_iterator LoadsOf(const Moves& moves) {
  return std::ranges::find_if(moves, [](const Move& move) { return !move.makes_room(); });
}

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_MOVE_H_
