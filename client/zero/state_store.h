// This rank's shard of the model state: where each granule's weight, remainder, moments and
// gradient lie, and the spare that makes every update out of place.
//
// Every trained granule's four kinds of state form an extent; there is one extent more than
// granules, the spare. An update reads a granule's extent, writes the spare, and flips: one 64-bit
// store in the commit segment says which extent is the granule's from now on, and the old one
// becomes the spare.
#ifndef GEMINID_CLIENT_ZERO_STATE_STORE_H_
#define GEMINID_CLIENT_ZERO_STATE_STORE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/zero/layout.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "proto/shm/commit_layout.h"

namespace geminid::zero {

struct StateStoreOptions {
  DataType data_type = DataType::kBFloat16;
  bool accumulate = false;  // gradients are summed over micro-batches, in fp32
  bool on_device = false;   // no host homes: everything lives in the arena
};

// Threads: Flip by the updating thread; everything else by any, for granules not being updated.
class StateStore {
 public:
  // Allocates everything, zeroed. RESOURCE_EXHAUSTED as the daemon words it.
  static absl::StatusOr<std::unique_ptr<StateStore>> Create(Session* session, const Layout& layout,
                                                            const StateStoreOptions& options);

  // One extent. Frozen granules have a weight alone; fp32 training has no remainder.
  struct View {
    std::byte* weight = nullptr;
    int16_t* remainder = nullptr;
    float* exp_avg = nullptr;
    float* exp_avg_sq = nullptr;
  };
  View Current(uint32_t granule) const { return views_[current_[granule].load()]; }
  View Spare() const { return views_[spare_]; }

  // The spare holds the granule's newest state, made by `epoch`. Everything written to it before is
  // visible to whoever sees the flip.
  void Flip(uint32_t granule, uint64_t epoch);

  // The reduced gradient of a granule: of the engine's type, or fp32 when accumulating.
  std::byte* Gradient(uint32_t granule) const { return gradients_[granule]; }

  // What transfers name. The weight's changes with each flip.
  ChunkId WeightChunk(uint32_t granule) const { return extents_[current_[granule].load()].weight; }
  ChunkId GradientChunk(uint32_t granule) const { return gradient_chunks_[granule]; }

  // When accumulating: where the `index`-th granule of a shard lands before it is added.
  ChunkId StagingChunk(uint32_t index) const { return staging_chunks_[index]; }
  std::byte* Staging(uint32_t index) const { return staging_[index]; }

  // Everything is used where it lives: in the arena, not at its home.
  bool on_device() const { return on_device_; }
  // What MoveToDevice would take of the arena.
  uint64_t device_bytes_needed() const;
  // Copies everything to the lowest places of the arena, and uses it there from now on; the homes
  // keep the older copies. Nothing may be in motion or being updated.
  absl::Status MoveToDevice();
  // Weights, remainders and moments of this rank, spare not included.
  uint64_t model_state_bytes() const { return model_state_bytes_; }
  // Of all chunks that live on the device.
  uint64_t device_bytes() const { return device_bytes_; }

 private:
  // What an extent does not have is kNoChunk.
  struct Extent {
    ChunkId weight = kNoChunk;
    ChunkId remainder = kNoChunk;
    ChunkId exp_avg = kNoChunk;
    ChunkId exp_avg_sq = kNoChunk;
  };

  StateStore(Session* session, const Layout& layout, const StateStoreOptions& options);
  absl::Status Allocate(const Layout& layout);
  absl::Status PlaceOnDevice(const std::vector<ChunkId>& chunks);
  absl::Status HoldOnDevice(ChunkId chunk);
  std::vector<ChunkId> Chunks() const;
  std::byte* Address(ChunkId chunk) const;
  void FindAddresses();

  Session* session_;
  StateStoreOptions options_;
  shm::CommitSegment* commit_ = nullptr;
  std::vector<Extent> extents_;
  std::vector<View> views_;  // by extent
  std::vector<std::atomic<uint32_t>> current_;
  uint32_t spare_ = 0;
  std::vector<ChunkId> gradient_chunks_;
  std::vector<std::byte*> gradients_;
  std::vector<ChunkId> staging_chunks_;
  std::vector<std::byte*> staging_;
  std::vector<Lease> leases_;  // keep the chunks on the device, when that is where they live
  uint64_t model_state_bytes_ = 0;
  uint64_t device_bytes_ = 0;
  bool on_device_ = false;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STATE_STORE_H_
