// This rank's shard of the model state: where each granule's weight, remainder, moments and
// gradient lie, and the spare that makes every update out of place.
//
// Every trained granule's kinds of state form an extent; for each form of extents there is one more
// than granules, the spare. A form is a data type, whether granules hold whole tensors, and whether
// their state is on disk. An update reads a granule's extent, writes the spare, and flips them: one
// 64-bit store in the commit segment says which extent is the granule's from now on. Its old extent
// becomes the spare. Chunks whose state lives on the device have a spare of their own there. Of an
// extent on disk the weight alone is in host memory (client/zero/state/disk_state.h). Which chunks
// have their state on disk is decided once for a run, and noted for its successors.
#ifndef GEMINID_CLIENT_ZERO_STATE_STATE_STORE_H_
#define GEMINID_CLIENT_ZERO_STATE_STATE_STORE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/zero/basics/compute.h"
#include "client/zero/basics/layout.h"
#include "client/zero/state/disk_count.h"
#include "client/zero/state/disk_state.h"
#include "client/zero/state/state_chunks.h"
#include "client/zero/state/state_list.h"
#include "client/zero/state/state_view.h"
#include "client/zero/state/step_notes.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "proto/shm/commit_layout.h"

namespace geminid::zero {

// Threads: Flip by the updating thread; everything else by any, for granules not being updated.
class StateStore {
 public:
  // Allocates everything, zeroed; or takes what a predecessor left. RESOURCE_EXHAUSTED as the
  // daemon words it. `layout` outlives it.
  static absl::StatusOr<std::unique_ptr<StateStore>> Create(Session* session, const Layout& layout,
                                                            const StateStoreOptions& options);

  // One extent; with state on disk its weight alone.
  using View = StateView;
  View Current(uint32_t granule) const { return extents_[current_[granule].load()].view; }
  // Where the granule's next version goes.
  View Spare(uint32_t granule) const { return extents_[spare_[SpareOf(granule)]].view; }

  // The spare holds the granule's newest state, made by `epoch`. Everything written to it before is
  // visible to whoever sees the flip.
  void Flip(uint32_t granule, uint64_t epoch);

  // The optimizer's numbers per tensor, in two versions: a step writes the spare one before its
  // commit record, then flips. So if this version's epoch is older than the newest record's, the
  // spare one is that record's. Null when there are none.
  std::byte* TensorState() const { return tensor_states_.addresses[tensor_states_.current]; }
  std::byte* SpareTensorState() const {
    return tensor_states_.addresses[1 - tensor_states_.current];
  }
  void FlipTensorState(uint64_t epoch);

  // --- for successors: state_store_resume.cc ---
  // It has a predecessor's chunks. left(): OK if training can go on from their contents, which the
  // newest commit record and the version words describe. Otherwise it says why not: the store must
  // be freed and made anew.
  bool is_claimed() const { return left_.claimed; }
  const absl::Status& left() const { return left_.status; }
  // Whether a successor may go on from here; to be said after each commit, and of other changes.
  void SetResumable(bool resumable) { commit_->header.resumable.store(resumable ? 1 : 0); }
  // Trained granules that no step from `epoch` on has updated.
  std::vector<uint32_t> GranulesBefore(uint64_t epoch) const;
  bool IsTensorStateBefore(uint64_t epoch) const;
  shm::CommitSegment* commit() const { return commit_; }
  StepNotes* notes() { return notes_.has_value() ? &*notes_ : nullptr; }

  // In the arena, where the device updates any state; else null. They hold anything between steps.
  float* DeviceScales() const { return scratch_.device_scales; }

  // StateStoreOptions::workspace_bytes, aligned to a line. They hold anything between updates.
  std::span<std::byte> Workspace() const { return scratch_.workspace; }

  // As many bytes as there are. They wait for what is being computed where it lies.
  absl::Status ReadTensorState(std::span<std::byte> bytes) const;
  absl::Status WriteTensorState(std::span<const std::byte> bytes);
  absl::Status WriteSpareTensorState(std::span<const std::byte> bytes);

  // The reduced gradient of a granule: of the weight's type, or fp32 when accumulating.
  std::byte* Gradient(uint32_t granule) const { return gradients_.places[granule]; }
  // Without a place of its own, until its update: where it lies.
  void SetGradient(uint32_t granule, std::byte* gradient) { gradients_.places[granule] = gradient; }
  DataType GradientType(uint32_t granule) const {
    return options_.accumulate ? DataType::kFloat32 : extents_[current_[granule].load()].form.type;
  }

  // Of all elements of the trained chunk, in fp32, in the arena; null: gradients are not summed
  // before they are reduced. It holds anything to begin with.
  float* GradientSum(uint32_t chunk) const {
    return gradients_.sums.empty() ? nullptr : gradients_.sums[chunk];
  }

  // All of its memory but the disk_count goes back to the session, and files on disk go. Nothing
  // else may be called after it.
  absl::Status Free();

  // What transfers name. The weight's changes with each flip.
  ChunkId WeightChunk(uint32_t granule) const { return extents_[current_[granule].load()].weight; }
  ChunkId GradientChunk(uint32_t granule) const { return gradients_.chunks[granule]; }
  // Of an extent: weight, remainder, the optimizer's arrays. What it does not have is kNoChunk.
  using ExtentChunks = std::array<ChunkId, 2 + kMaxStateArrays>;
  ExtentChunks CurrentChunks(uint32_t granule) const {
    return ChunksIn(extents_[current_[granule].load()]);
  }
  ExtentChunks SpareChunks(uint32_t granule) const {
    return ChunksIn(extents_[spare_[SpareOf(granule)]]);
  }

  uint32_t landing_places() const { return options_.landing_places; }
  // When accumulating: where the `index`-th granule of a shard lands before it is added; else the
  // `index`-th of the landing places. Large enough for one of any type.
  ChunkId StagingChunk(uint32_t index) const { return gradients_.staging_chunks[index]; }
  std::byte* Staging(uint32_t index) const { return gradients_.staging[index]; }

  // The chunk's state is used where it lives: in the arena, not at its home.
  bool on_device(uint32_t chunk) const {
    return granule_on_device(layout_.chunks[chunk].first_granule);
  }
  bool granule_on_device(uint32_t granule) const { return TierOf(granule) == kDevice; }
  // Its state lies on the host, and the device updates it.
  bool streamed(uint32_t chunk) const {
    return granule_streamed(layout_.chunks[chunk].first_granule);
  }
  bool granule_streamed(uint32_t granule) const {
    return any_streamed() && options_.streamed[granule] && !granule_on_device(granule);
  }
  bool any_streamed() const { return !options_.streamed.empty(); }

  // --- state on disk ---
  bool any_on_disk() const { return disk_.state != nullptr; }
  bool granule_on_disk(uint32_t granule) const {
    return extents_[current_[granule].load()].form.on_disk;
  }
  bool chunk_on_disk(uint32_t chunk) const {
    return granule_on_disk(layout_.chunks[chunk].first_granule);
  }
  size_t chunks_on_disk() const;
  DiskState* disk() const { return disk_.state.get(); }  // null: there is none
  // After a read of a granule on disk: after DATA_LOSS no successor goes on from what is there.
  void NoteRead(const absl::Status& read) const {
    if (absl::IsDataLoss(read)) commit_->header.resumable.store(0);
  }
  // DiskState::Use of a granule on disk, noted as above.
  absl::Status UseOnDisk(uint32_t granule, bool writes,
                         const std::function<absl::Status(const StateView&)>& use) const;
  // By all processes of the run. Free leaves it, for another store of this process.
  const std::shared_ptr<DiskCount>& disk_count() const { return disk_.count; }
  GranuleOnDisk OnDisk(uint32_t granule) const;
  uint32_t SpareExtent(uint32_t granule) const { return spare_[SpareOf(granule)]; }
  uint64_t WeightBytes(uint32_t granule) const {
    return chunks_.session().Bytes(WeightChunk(granule));
  }

  // Before its update the granule's state is fetched from elsewhere
  // (client/zero/update/updates_ahead.h).
  bool granule_fetched(uint32_t granule) const {
    return granule_on_disk(granule) || granule_streamed(granule);
  }
  // How many arrays the optimizer keeps of the granule, wherever they are.
  size_t arrays_of(uint32_t granule) const;
  const ComputePlace& device_compute() const { return compute_->on_device(); }
  // Who computes on it there; and on numbers per tensor, which read state of both kinds.
  const ComputePlace& ComputeOf(uint32_t granule) const {
    return compute_->Of(granule_on_device(granule));
  }
  const ComputePlace& ComputeOfTensors() const {
    return compute_->Of(any_on_device() || any_streamed());
  }
  bool any_on_device() const { return chunks_.any_kept(); }
  // What MoveToDevice would take of the arena: for a chunk, and once if any of them is trained.
  uint64_t device_bytes_of(uint32_t chunk) const;
  uint64_t device_spare_bytes() const;
  // Copies the state of chunks to the lowest places of the arena, and uses it there from now on;
  // the homes keep the older copies. Nothing may be in motion or being updated. At most once.
  absl::Status MoveToDevice(std::span<const uint32_t> chunks);
  // Chunks at the bottom of the arena, for what passes through them: StateChunks::PlaceOpen. Before
  // there is state above them. RESOURCE_EXHAUSTED as the daemon words it.
  absl::StatusOr<std::vector<ChunkId>> MakePlaces(const std::string& name, size_t count,
                                                  uint64_t bytes);
  // See StateChunks. Nothing may be in motion or being updated until it is back.
  absl::Status PrepareToLeave() { return chunks_.PrepareToLeave(); }
  void StayAfterAll() { chunks_.StayAfterAll(); }
  absl::Status LeaveDevice() { return chunks_.Leave(); }
  absl::Status ReturnToDevice() { return chunks_.Return(); }
  // Instead: nothing is updated any more.
  void StayOnHost();

  // Weights, remainders, the optimizer's arrays and numbers per tensor; spares not included.
  uint64_t model_state_bytes() const { return model_state_bytes_; }
  // Of all chunks that live on the device, of sums of gradients, and of MakePlaces.
  uint64_t device_bytes() const { return chunks_.device_bytes(); }

 private:
  enum Tier { kHost, kDevice };

  static constexpr size_t kForms = 4 * kTrainedTypes;

  // What an extent does not have is kNoChunk.
  struct Extent {
    ChunkId weight = kNoChunk;
    ChunkId remainder = kNoChunk;
    std::array<ChunkId, kMaxStateArrays> arrays = {kNoChunk, kNoChunk};
    Tier tier = kHost;
    StateForm form{};
    View view{};  // where that is
  };
  StateStore(Session* session, const Layout& layout, const StateStoreOptions& options);
  absl::Status Allocate();
  void TakeExtents(const StateList& list, const std::vector<ChunkId>& ids);
  void TakeGranules(const StateList& list, const std::vector<ChunkId>& ids);
  bool keeps_gradient(const ChunkShape& chunk) const {
    return chunk.trainable && options_.landing_places == 0;
  }
  Extent MakeExtent(const ExtentSlots& slots, const std::vector<ChunkId>& ids, Tier tier) const;
  absl::Status MakeDisk(const StateList& list, const std::vector<ChunkId>& ids);
  // What is on disk, from a predecessor's note if there is one; it becomes options_.on_disk.
  absl::Status ClaimNoteOfDisk();
  absl::Status NoteDisk();
  // Of what a predecessor left, if it is wanted and there; else new ones.
  absl::StatusOr<std::vector<ChunkId>> ObtainChunks(StateList* list);
  absl::Status NoteWhatIsLeft(absl::Status found);
  absl::Status ObtainNotes();
  std::vector<ExtentSlots> DeviceSpareSlots(std::vector<ChunkSpec>* specs) const {
    return AddSpares(layout_, options_, /*has_home=*/false, "device spare", specs);
  }
  absl::Status HoldClaimed(const std::vector<ChunkId>& chunks);
  absl::Status TakeUp();
  // By the device's spares: the granule whose newest state is there, if any.
  using OnDeviceSpares = std::vector<std::optional<uint32_t>>;
  absl::Status ReadVersions(std::vector<bool>* used, OnDeviceSpares* on_device_spares);
  absl::Status CopyAllHome();
  absl::Status CopyHome(ChunkId from, ChunkId to);
  absl::Status FreeDeviceSpare();
  absl::Status TakeFromDeviceSpare(const ExtentSlots& spare, uint32_t granule,
                                   std::vector<bool>* used);
  absl::Status FindSpares(const std::vector<bool>& used);
  // Of the form, and nobody's.
  std::optional<uint32_t> UnusedExtent(const StateForm& form, const std::vector<bool>& used) const;
  absl::Status MakeDeviceSpares();
  absl::Status MakeDeviceScales();
  absl::Status MakeWorkspace();
  absl::Status MakeGradientSums();
  // In the arena, apart from the list of all else, which a successor claims: what these hold is
  // nobody's.
  absl::StatusOr<std::vector<ChunkId>> MakePassing(const std::vector<ChunkSpec>& specs);
  absl::Status WriteTo(std::byte* tensor_state, std::span<const std::byte> bytes);
  Tier TierOf(uint32_t granule) const { return extents_[current_[granule].load()].tier; }
  static size_t SpareOf(Tier tier, const StateForm& form) {
    const size_t kind = (form.on_disk ? 2 : 0) + (form.whole ? 1 : 0);
    return static_cast<size_t>(tier) * kForms + kind * kTrainedTypes +
           static_cast<size_t>(form.type);
  }
  size_t SpareOf(uint32_t granule) const {
    const Extent& extent = extents_[current_[granule].load()];
    return SpareOf(extent.tier, extent.form);
  }
  std::vector<ChunkId> ChunksOf(uint32_t chunk) const;
  static ExtentChunks ChunksIn(const Extent& extent);
  std::byte* Address(ChunkId chunk, Tier tier) const;
  void FindAddresses();

  // A predecessor's state.
  struct Left {
    bool claimed = false;
    absl::Status status;
    std::vector<ChunkId> device_spare;  // if it had one
    ChunkId note_of_disk = kNoChunk;
    std::vector<bool> chosen_on_disk;  // by this process, where the note says otherwise
  };
  struct Disk {
    std::shared_ptr<DiskCount> count;
    std::unique_ptr<DiskState> state;
  };
  // Of reduced gradients: by granule, and where those land that have no place of their own.
  struct Gradients {
    std::vector<ChunkId> chunks;
    std::vector<std::byte*> places;
    std::vector<ChunkId> staging_chunks;
    std::vector<std::byte*> staging;
    std::vector<float*> sums;  // by chunk
  };
  // Of the optimizer: it holds anything between updates.
  struct Scratch {
    float* device_scales = nullptr;
    std::span<std::byte> workspace{};
  };
  struct TensorStates {
    std::array<ChunkId, 2> chunks = {kNoChunk, kNoChunk};
    std::array<std::byte*, 2> addresses = {};
    uint32_t current = 0;
  };

  const Layout& layout_;
  StateStoreOptions options_;
  StateChunks chunks_;
  shm::CommitSegment* commit_ = nullptr;
  std::vector<Extent> extents_;
  std::vector<std::atomic<uint32_t>> current_;       // by granule: its extent
  std::array<uint32_t, 2 * kForms> spare_ = {};      // by tier and form
  Gradients gradients_;
  TensorStates tensor_states_;
  Scratch scratch_;
  Left left_;
  std::optional<StepNotes> notes_;
  uint64_t model_state_bytes_ = 0;
  Disk disk_;
  std::unique_ptr<Compute> compute_;  // last: it finishes what it was given
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STATE_STATE_STORE_H_
