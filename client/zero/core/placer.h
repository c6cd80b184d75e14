// Decides where the Director's moves go on this rank. All ranks make the same moves, but only this
// rank knows how much workspace its trainer takes. A chunk that finds no room, or must make room,
// is stored in host memory meanwhile. So no move that other ranks take part in ever waits for room.
// Weights that no other rank has to gather with this one are dropped instead, and gathered again.
// Pure: returns steps to execute one after the other.
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
    // Requests to the queue, which executes them in order.
    kGather,
    kGatherToHost,
    kOpen,
    kReduce,
    kDrop,
    // Executed by the caller at once, after all moves of the chunk have ended.
    kToHost,    // off the device; the contents are stored on the host
    kToDevice,  // back to the device, to `offset`
    kForget,    // the contents stored on the host are discarded
    kReserve,   // `offset` bytes at the arena's top, once nothing lies there
  };
  Kind kind = Kind::kGather;
  uint32_t chunk = 0;
  uint64_t offset = 0;
  std::optional<uint32_t> due = {};  // as in the move
  bool within_host = false;          // as in the move, for a gather
  uint64_t before = 0;               // kReserve: the bytes reserved before

  friend bool operator==(const Step&, const Step&) = default;
};

using Steps = std::vector<Step>;

class Placer {
 public:
  // Whether the chunk holds nothing but weights that this rank can gather again without others.
  using Regathers = std::function<bool(uint32_t chunk)>;
  // Extents are multiples of `alignment_bytes`. A null `regathers` stands for: no chunk.
  Placer(uint64_t arena_bytes, uint64_t alignment_bytes, std::vector<uint64_t> chunk_bytes,
         Regathers regathers = nullptr);

  // The optimizer's state takes so many bytes of the arena's bottom.
  void SetFloor(uint64_t bytes) { map_.SetFloor(bytes); }
  uint64_t floor_bytes() const { return map_.floor_bytes(); }

  // Chunks for which `held` returns true do not move. Called only within the call that gets it.
  using IsHeld = std::function<bool(uint32_t chunk)>;

  // Call before an operator's chunks are placed. Workspace grows down from the top until it meets a
  // chunk that an operator holds, which cannot move. Space of other chunks below that chunk is lost
  // to workspace. If workspace could therefore not grow to `enough_bytes`, the chunks below are
  // evicted: Place and Load then put the operator's chunks at the bottom. Not if host memory does
  // not take the evicted chunks: `stores` is asked before anything is evicted.
  using Stores = std::function<bool(std::span<const uint32_t> chunks)>;
  Steps MakeWay(std::span<const uint32_t> chunks, uint64_t enough_bytes, const IsHeld& held,
                const Stores& stores);
  // Evicts nothing: a chunk that finds no room waits in host memory, or ungathered, until it is
  // needed. A chunk that is reduced must be on the device.
  Steps Place(const Moves& moves);
  // Whether all `chunks` fit beside `workspace_bytes` and the held chunks, with everything else
  // evicted. If true, Reserve of so many bytes, any Place, and Load of these chunks succeed.
  bool Fits(std::span<const uint32_t> chunks, uint64_t workspace_bytes, const IsHeld& held) const;
  // Brings all chunks that an operator needs to the device, each from wherever it is; evicts
  // others. RESOURCE_EXHAUSTED if there is still not enough room.
  absl::StatusOr<Steps> Load(std::span<const uint32_t> chunks, const IsHeld& held);

  // The top `bytes` become workspace, up to `wanted` if that needs no further eviction.
  // RESOURCE_EXHAUSTED if a held chunk is in the way.
  absl::StatusOr<Steps> Reserve(uint64_t bytes, uint64_t wanted, const IsHeld& held);
  uint64_t reserved_bytes() const { return map_.workspace_bytes(); }

  // A block of workspace in a hole, for when the top cannot grow. `block`: a number that no other
  // block has at the time.
  struct Block {
    uint64_t offset = 0;
    Steps steps;
  };
  absl::StatusOr<Block> PlaceBlock(uint32_t block, uint64_t bytes, const IsHeld& held);
  void FreeBlock(uint32_t block) { map_.Remove(OwnerOf(block)); }

  bool OnDevice(uint32_t chunk) const { return where_[chunk] == Where::kDevice; }
  // Where the chunk lies or will lie; for a chunk that is off the device, where it last was.
  uint64_t offset(uint32_t chunk) const { return offsets_[chunk]; }
  uint64_t used_bytes() const { return map_.used_bytes(); }

 private:
  // kUnopened and kUngathered: the Director has it on the device, and it will get there by an
  // opening or a gather when an operator needs it.
  enum class Where { kAway, kDevice, kHost, kUnopened, kUngathered };

  uint32_t OwnerOf(uint32_t block) const { return static_cast<uint32_t>(bytes_.size()) + block; }
  uint64_t RoundUp(uint64_t bytes) const { return base::RoundUp(bytes, alignment_bytes_); }
  // Where `chunks` would lie, and the most workspace beside them and the held chunks, if everything
  // else were evicted. nullopt: not all of them fit.
  struct Packed {
    std::map<uint32_t, uint64_t> offsets;
    uint64_t most_workspace_bytes = 0;
  };
  std::optional<Packed> Pack(std::span<const uint32_t> chunks, const IsHeld& held) const;
  // The chunks on the device that must leave their places for these ones.
  std::vector<uint32_t> Displaced(const std::map<uint32_t, uint64_t>& offsets) const;
  // The most workspace if `chunks` are placed without packing and everything else is evicted.
  uint64_t MostWorkspaceUnpacked(std::span<const uint32_t> chunks, const IsHeld& held) const;
  // Places for all `chunks`, the largest first; held chunks stay where they are.
  std::optional<std::map<uint32_t, uint64_t>> PackAll(std::span<const uint32_t> chunks,
                                                      uint64_t workspace_bytes,
                                                      const IsHeld& held) const;
  ArenaMap MapOf(std::span<const uint32_t> chunks, const IsHeld& held) const;
  void PutAt(uint32_t chunk, uint64_t offset);
  void SetWorkspace(uint64_t bytes, Steps* steps);
  bool MayRegather(uint32_t chunk) const { return regathers_ && regathers_(chunk); }
  void Evict(uint32_t chunk, Steps* steps);
  // The step that brings a chunk to the device from where it is.
  Step::Kind KindOfLoad(uint32_t chunk) const;
  void Return(const Move& move, Steps* steps);
  void LoadTo(uint32_t chunk, const ArenaMap::Room& room, Steps* steps);
  bool LoadOne(uint32_t chunk, const ArenaMap::Movable& movable, Steps* steps);
  bool LoadAll(std::span<const uint32_t> chunks, const IsHeld& held, Steps* steps);
  absl::Status NoRoom(uint64_t bytes) const;

  const uint64_t alignment_bytes_;
  const std::vector<uint64_t> bytes_;  // by chunk
  const Regathers regathers_;
  ArenaMap map_;
  std::vector<Where> where_;
  std::vector<uint64_t> offsets_;        // by chunk
  uint64_t needed_workspace_bytes_ = 0;  // of the reservation; the rest is only wanted
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_PLACER_H_
