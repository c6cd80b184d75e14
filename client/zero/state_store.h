// This rank's shard of the model state: where each granule's weight, remainder, moments and
// gradient lie, and the spare that makes every update out of place.
//
// Every trained granule's kinds of state form an extent; for each data type there is one extent
// more than granules, the spare. An update reads a granule's extent, writes the spare, and flips:
// one 64-bit store in the commit segment says which extent is the granule's from now on, and the
// old one becomes the spare. Chunks whose state lives on the device have a spare of their own
// there.
#ifndef GEMINID_CLIENT_ZERO_STATE_STORE_H_
#define GEMINID_CLIENT_ZERO_STATE_STORE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/zero/compute.h"
#include "client/zero/layout.h"
#include "client/zero/step_notes.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "proto/shm/commit_layout.h"

namespace geminid::zero {

inline constexpr size_t kMaxStateArrays = 2;

inline constexpr size_t kDataTypes = 2;

struct StateStoreOptions {
  bool accumulate = false;  // gradients are summed over micro-batches, in fp32
  // Of one granule each: where gradients land that are used up as they come. 0: every granule's
  // gradient has a place of its own.
  uint32_t landing_places = 0;
  bool on_device = false;      // no host homes: everything lives in the arena
  bool gradient_sums = false;  // of whole chunks, over micro-batches, before ranks add them up
  // Full-size fp32 arrays that the optimizer keeps per parameter, at most kMaxStateArrays.
  size_t state_arrays = 2;
  uint64_t tensor_state_bytes = 0;            // numbers per tensor, which every rank keeps whole
  uint64_t device_scale_bytes = 0;            // for kernels, beside state on the device
  bool resume = false;                        // from what a predecessor left, if it left this
  std::optional<size_t> noted_tensors{};      // steps are noted for a successor; none: they are not
  absl::Duration timeout = absl::Minutes(5);  // for each answer of the daemon
};

// Threads: Flip by the updating thread; everything else by any, for granules not being updated.
class StateStore {
 public:
  // Allocates everything, zeroed; or takes what a predecessor left. RESOURCE_EXHAUSTED as the
  // daemon words it. `layout` outlives it.
  static absl::StatusOr<std::unique_ptr<StateStore>> Create(Session* session, const Layout& layout,
                                                            const StateStoreOptions& options);

  // One extent. Frozen granules have a weight alone; fp32 weights have no remainder.
  struct View {
    DataType type = DataType::kBFloat16;  // of the weight
    std::byte* weight = nullptr;
    int16_t* remainder = nullptr;
    std::array<float*, kMaxStateArrays> arrays = {};
  };
  View Current(uint32_t granule) const { return views_[current_[granule].load()]; }
  // Where the granule's next version goes.
  View Spare(uint32_t granule) const { return views_[spare_[SpareOf(granule)]]; }

  // The spare holds the granule's newest state, made by `epoch`. Everything written to it before is
  // visible to whoever sees the flip.
  void Flip(uint32_t granule, uint64_t epoch);

  // The optimizer's numbers per tensor, in two versions: a step writes the spare one before its
  // commit record, then flips. So if this version's epoch is older than the newest record's, the
  // spare one is that record's. Null when there are none.
  std::byte* TensorState() const { return tensor_states_[tensor_state_]; }
  std::byte* SpareTensorState() const { return tensor_states_[1 - tensor_state_]; }
  void FlipTensorState(uint64_t epoch);

  // --- for successors: state_store_resume.cc ---
  // It has a predecessor's chunks. left(): OK if they can be gone on from, where the newest commit
  // record and the version words say; else why not, and it must be freed and made anew.
  bool is_claimed() const { return claimed_; }
  const absl::Status& left() const { return left_; }
  // Whether a successor may go on from here; to be said after each commit, and of other changes.
  void SetResumable(bool resumable) { commit_->header.resumable.store(resumable ? 1 : 0); }
  // Trained granules that no step from `epoch` on has updated.
  std::vector<uint32_t> GranulesBefore(uint64_t epoch) const;
  bool IsTensorStateBefore(uint64_t epoch) const;
  shm::CommitSegment* commit() const { return commit_; }
  StepNotes* notes() { return notes_.has_value() ? &*notes_ : nullptr; }

  // In the arena, where trained state lives there; else null. They hold anything between steps.
  float* DeviceScales() const { return device_scales_; }

  // As many bytes as there are. They wait for what is being computed where it lies.
  absl::Status ReadTensorState(std::span<std::byte> bytes) const;
  absl::Status WriteTensorState(std::span<const std::byte> bytes);
  absl::Status WriteSpareTensorState(std::span<const std::byte> bytes);

  // The reduced gradient of a granule: of the weight's type, or fp32 when accumulating.
  std::byte* Gradient(uint32_t granule) const { return gradients_[granule]; }
  // Without a place of its own, until its update: where it lies.
  void SetGradient(uint32_t granule, std::byte* gradient) { gradients_[granule] = gradient; }
  DataType GradientType(uint32_t granule) const {
    return options_.accumulate ? DataType::kFloat32 : extents_[current_[granule].load()].type;
  }

  // Of all elements of the trained chunk, in fp32, in the arena; null: gradients are not summed
  // before they are reduced. It holds anything to begin with.
  float* GradientSum(uint32_t chunk) const {
    return gradient_sums_.empty() ? nullptr : gradient_sums_[chunk];
  }

  // All of its memory goes back to the session. Nothing else may be called after it.
  absl::Status Free();

  // What transfers name. The weight's changes with each flip.
  ChunkId WeightChunk(uint32_t granule) const { return extents_[current_[granule].load()].weight; }
  ChunkId GradientChunk(uint32_t granule) const { return gradient_chunks_[granule]; }

  uint32_t landing_places() const { return options_.landing_places; }
  // When accumulating: where the `index`-th granule of a shard lands before it is added; else the
  // `index`-th of the landing places. Large enough for one of any type.
  ChunkId StagingChunk(uint32_t index) const { return staging_chunks_[index]; }
  std::byte* Staging(uint32_t index) const { return staging_[index]; }

  // The chunk's state is used where it lives: in the arena, not at its home.
  bool on_device(uint32_t chunk) const { return chunk_on_device_[chunk]; }
  bool granule_on_device(uint32_t granule) const { return TierOf(granule) == kDevice; }
  // Who computes on it there; and on numbers per tensor, which read state of both kinds.
  const ComputePlace& ComputeOf(uint32_t granule) const {
    return compute_->Of(granule_on_device(granule));
  }
  const ComputePlace& ComputeOfTensors() const { return compute_->Of(any_on_device()); }
  bool any_on_device() const { return device_bytes_ > sum_bytes_; }
  // What MoveToDevice would take of the arena: for a chunk, and once if any of them is trained.
  uint64_t device_bytes_of(uint32_t chunk) const;
  uint64_t device_spare_bytes() const;
  // Copies the state of chunks to the lowest places of the arena, and uses it there from now on;
  // the homes keep the older copies. Nothing may be in motion or being updated. At most once.
  absl::Status MoveToDevice(std::span<const uint32_t> chunks);
  // All that lies in the arena leaves it, contents kept on the host, and comes back to the same
  // addresses. First room is made for what has no home: RESOURCE_EXHAUSTED, and nothing has moved.
  // Nothing may be in motion or being updated until it is back.
  absl::Status PrepareToLeave();
  void StayAfterAll();
  absl::Status LeaveDevice();
  absl::Status ReturnToDevice();
  // Instead: it does not come back, and is read where it is. Nothing is updated any more.
  void StayOnHost();

  // Weights, remainders, the optimizer's arrays and numbers per tensor; spares not included.
  uint64_t model_state_bytes() const { return model_state_bytes_; }
  // Of all chunks that live on the device, and of sums of gradients.
  uint64_t device_bytes() const { return device_bytes_; }

 private:
  enum Tier { kHost, kDevice };

  // What an extent does not have is kNoChunk.
  struct Extent {
    ChunkId weight = kNoChunk;
    ChunkId remainder = kNoChunk;
    std::array<ChunkId, kMaxStateArrays> arrays = {kNoChunk, kNoChunk};
    Tier tier = kHost;
    DataType type = DataType::kBFloat16;
  };
  // Sessions allocate by lists: an extent's places in one.
  struct ExtentSlots {
    size_t weight = 0;
    size_t remainder = 0;
    std::array<size_t, kMaxStateArrays> arrays = {};
    DataType type = DataType::kBFloat16;
    bool trainable = false;
  };

  StateStore(Session* session, const Layout& layout, const StateStoreOptions& options);
  absl::Status Allocate(const Layout& layout);
  ExtentSlots AddExtent(const ChunkShape& chunk, bool spare, bool has_home, const std::string& name,
                        std::vector<ChunkSpec>* specs) const;
  std::vector<ExtentSlots> AddSpares(bool has_home, const std::string& name,
                                     std::vector<ChunkSpec>* specs) const;
  Extent MakeExtent(const ExtentSlots& slots, const std::vector<ChunkId>& ids, Tier tier) const;
  absl::StatusOr<std::vector<ChunkId>> AllocateChunks(const std::vector<ChunkSpec>& specs);
  // Of what a predecessor left, if it is wanted and there; else new ones.
  absl::StatusOr<std::vector<ChunkId>> ObtainChunks(const std::vector<ChunkSpec>& specs);
  // Nothing: there are none such.
  absl::StatusOr<std::optional<std::vector<ChunkId>>> ClaimChunks(
      const std::vector<ChunkSpec>& specs);
  absl::Status NoteWhatIsLeft(absl::Status found);
  absl::Status ObtainNotes();
  std::vector<ExtentSlots> DeviceSpareSlots(std::vector<ChunkSpec>* specs) const {
    return AddSpares(/*has_home=*/false, "device spare", specs);
  }
  absl::Status HoldClaimed(const std::vector<ChunkId>& chunks);
  absl::Status TakeUp();
  // By the device's spares: the granule whose newest state is there, if any.
  using OnDeviceSpares = std::vector<std::optional<uint32_t>>;
  absl::Status ReadVersions(std::vector<bool>* used, OnDeviceSpares* on_device_spares);
  absl::Status BringHome();
  absl::Status CopyHome(ChunkId from, ChunkId to);
  absl::Status FreeDeviceSpare();
  absl::Status TakeFromDeviceSpare(const ExtentSlots& spare, uint32_t granule,
                                   std::vector<bool>* used);
  absl::Status FindSpares(const std::vector<bool>& used);
  // Of the type, and nobody's.
  std::optional<uint32_t> UnusedExtent(DataType type, const std::vector<bool>& used) const;
  absl::Status MakeDeviceSpares();
  absl::Status MakeDeviceScales();
  absl::Status MakeGradientSums();
  // In the arena, apart from the list of all else, which a successor claims: what these hold is
  // nobody's.
  absl::StatusOr<std::vector<ChunkId>> MakePassing(const std::vector<ChunkSpec>& specs);
  absl::Status PlaceOnDevice(const std::vector<ChunkId>& chunks);
  absl::Status WriteTo(std::byte* tensor_state, std::span<const std::byte> bytes);
  absl::Status HoldOnDevice(ChunkId chunk);
  Tier TierOf(uint32_t granule) const { return extents_[current_[granule].load()].tier; }
  static size_t SpareOf(Tier tier, DataType type) {
    return static_cast<size_t>(tier) * kDataTypes + static_cast<size_t>(type);
  }
  size_t SpareOf(uint32_t granule) const {
    const Extent& extent = extents_[current_[granule].load()];
    return SpareOf(extent.tier, extent.type);
  }
  std::vector<ChunkId> ChunksOf(uint32_t chunk) const;
  std::byte* Address(ChunkId chunk, Tier tier) const;
  void FindAddresses();

  const Layout& layout_;
  Session* session_;
  StateStoreOptions options_;
  shm::CommitSegment* commit_ = nullptr;
  std::vector<Extent> extents_;
  std::vector<View> views_;  // by extent
  std::vector<std::atomic<uint32_t>> current_;
  std::array<uint32_t, 2 * kDataTypes> spare_ = {};  // by tier and type
  std::vector<ChunkId> gradient_chunks_;
  std::vector<std::byte*> gradients_;
  std::vector<ChunkId> staging_chunks_;
  std::vector<std::byte*> staging_;
  float* device_scales_ = nullptr;
  std::vector<float*> gradient_sums_;  // by chunk
  uint64_t sum_bytes_ = 0;             // of the arena
  // Of a chunk that lives on the device, its lease, and where it waits while it is not there.
  struct Held {
    ChunkId chunk = kNoChunk;
    std::optional<Lease> lease;
    ChunkId refuge = kNoChunk;  // its home, or a chunk for it
    uint64_t offset = 0;
    bool keeps = true;  // its contents, between steps
  };

  std::vector<Held> held_;
  bool claimed_ = false;
  absl::Status left_;
  std::vector<ChunkId> device_spare_;  // a predecessor's, if it had one
  std::optional<StepNotes> notes_;
  std::array<ChunkId, 2> tensor_state_chunks_ = {kNoChunk, kNoChunk};
  std::vector<ChunkId> allocated_;
  std::array<std::byte*, 2> tensor_states_ = {};
  uint32_t tensor_state_ = 0;  // the current one
  uint64_t model_state_bytes_ = 0;
  uint64_t device_bytes_ = 0;
  std::vector<bool> chunk_on_device_;
  std::unique_ptr<Compute> compute_;  // last: it finishes what it was given
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STATE_STORE_H_
