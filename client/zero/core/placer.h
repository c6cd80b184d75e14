// Where the Director's moves go on this rank. All ranks make the same moves; this one alone knows
// how much workspace its trainer takes, and finds room. What finds none, and what must make room,
// stays in host memory meanwhile: so no move that other ranks take part in ever waits for room.
// Pure: steps to carry out one after the other.
#ifndef GEMINID_CLIENT_ZERO_CORE_PLACER_H_
#define GEMINID_CLIENT_ZERO_CORE_PLACER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/pages.h"
#include "client/zero/core/arena_map.h"
#include "client/zero/core/move.h"

namespace geminid::zero {

struct Step {
  enum class Kind {
    // Asked of the queue, which carries them out in order.
    kGather,
    kGatherToHost,
    kOpen,
    kReduce,
    kDrop,
    // Carried out here and now, once nothing of the chunk is under way.
    kToHost,    // off the device, contents kept
    kToDevice,  // back, to `offset`
    kForget,    // what is kept of it is given up
    kReserve,   // `offset` bytes at the top, once nothing lies there
  };
  Kind kind = Kind::kGather;
  uint32_t chunk = 0;
  uint64_t offset = 0;
  std::optional<uint32_t> due = {};  // as the move's
  bool within_host = false;          // likewise, of a gather
  uint64_t before = 0;               // kReserve: what was reserved

  friend bool operator==(const Step&, const Step&) = default;
};

using Steps = std::vector<Step>;

class Placer {
 public:
  // Extents are multiples of `alignment_bytes`.
  Placer(uint64_t arena_bytes, uint64_t alignment_bytes, std::vector<uint64_t> chunk_bytes);

  // The state takes this much of the arena's bottom.
  void SetFloor(uint64_t bytes) { map_.SetFloor(bytes); }
  uint64_t floor_bytes() const { return map_.floor_bytes(); }

  // Chunks that `held` names stay where they are; it is asked at once only.
  using Held = std::function<bool(uint32_t chunk)>;

  // Before an operator's chunks are placed. Workspace grows downwards from the top until it meets a
  // chunk that an operator holds, which cannot move; so what other chunks occupy below the
  // operator's is lost to it. If workspace could not grow to `enough_bytes` for that reason, the
  // chunks below make way: Place and Load then put the operator's at the bottom.
  Steps MakeWay(std::span<const uint32_t> chunks, uint64_t enough_bytes, const Held& held);
  // Nothing makes way here: what finds no room waits in host memory until it is needed. What is
  // reduced must be on the device.
  Steps Place(const Moves& moves);
  // Whether there is room for all of these beside `workspace_bytes` and what is held, if everything
  // else leaves. Then Reserve of so many bytes, any Place and Load of these do not fail.
  bool Fits(std::span<const uint32_t> chunks, uint64_t workspace_bytes, const Held& held) const;
  // What an operator needs, all of which is somewhere, comes to the device together; others make
  // way. RESOURCE_EXHAUSTED if that does not do.
  absl::StatusOr<Steps> Load(std::span<const uint32_t> chunks, const Held& held);

  // The top `bytes` become workspace. `wanted`: more, as far as nothing must make way for it.
  // RESOURCE_EXHAUSTED if something is held there.
  absl::StatusOr<Steps> Reserve(uint64_t bytes, uint64_t wanted, const Held& held);
  uint64_t reserved_bytes() const { return map_.workspace_bytes(); }

  // A block of workspace in a hole, when the top cannot grow. `block`: any number that no other
  // block has now.
  struct Block {
    uint64_t offset = 0;
    Steps steps;
  };
  absl::StatusOr<Block> PlaceBlock(uint32_t block, uint64_t bytes, const Held& held);
  void FreeBlock(uint32_t block) { map_.Remove(OwnerOf(block)); }

  bool OnDevice(uint32_t chunk) const { return where_[chunk] == Where::kDevice; }
  // Where the chunk lies, or will once it has come; of one that is away, where it last was.
  uint64_t offset(uint32_t chunk) const { return offsets_[chunk]; }
  uint64_t used_bytes() const { return map_.used_bytes(); }

 private:
  enum class Where { kAway, kDevice, kHost, kUnopened };

  uint32_t OwnerOf(uint32_t block) const { return static_cast<uint32_t>(bytes_.size()) + block; }
  uint64_t RoundUp(uint64_t bytes) const { return base::RoundUp(bytes, alignment_bytes_); }
  // Where `chunks` would lie, and the most workspace beside them and what is held, if everything
  // else left. Nothing: not all of them fit.
  struct Packed {
    std::map<uint32_t, uint64_t> offsets;
    uint64_t most_workspace_bytes = 0;
  };
  std::optional<Packed> Pack(std::span<const uint32_t> chunks, const Held& held) const;
  // The most workspace if the chunks are placed as things are and everything else leaves.
  uint64_t MostWorkspaceUnpacked(std::span<const uint32_t> chunks, const Held& held) const;
  // Places for all of these but those that are held where they are, the largest first.
  std::optional<std::map<uint32_t, uint64_t>> PackAll(std::span<const uint32_t> chunks,
                                                      uint64_t workspace_bytes,
                                                      const Held& held) const;
  ArenaMap MapOf(std::span<const uint32_t> chunks, const Held& held) const;
  void PutAt(uint32_t chunk, uint64_t offset);
  void SetWorkspace(uint64_t bytes, Steps* steps);
  void ToHost(uint32_t chunk, Steps* steps);
  void Return(const Move& move, Steps* steps);
  void LoadTo(uint32_t chunk, const ArenaMap::Room& room, Steps* steps);
  bool LoadOne(uint32_t chunk, const ArenaMap::Movable& movable, Steps* steps);
  bool LoadAll(std::span<const uint32_t> chunks, const Held& held, Steps* steps);
  absl::Status NoRoom(uint64_t bytes) const;

  const uint64_t alignment_bytes_;
  const std::vector<uint64_t> bytes_;  // by chunk
  ArenaMap map_;
  std::vector<Where> where_;
  std::vector<uint64_t> offsets_;        // by chunk
  uint64_t needed_workspace_bytes_ = 0;  // of what is reserved: the rest is wanted only
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_PLACER_H_
