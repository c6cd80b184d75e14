// This rank's shard of the model state: the places of each granule's weight, remainder, moments and
// gradient. Spares let every update write out of place.
//
// An extent holds all kinds of state of one trained granule. For each form of extents there is one
// more extent than granules, the spare. A form is a data type, whether granules hold whole tensors,
// and whether their state is on disk. An update reads the granule's extent, writes the spare, and
// flips them: one 64-bit store in the commit segment names the granule's new extent. Its old extent
// becomes the spare. Chunks whose state lives on the device have a spare of their own there. If an
// extent is on disk, only its weight is in host memory (client/zero/state/disk_state.h). The chunks
// with state on disk are chosen once for a run, and noted for replacement processes.
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

// Threads: only the updating thread calls Flip. Any thread may call the other functions, for
// granules that are not being updated.
class StateStore {
 public:
  // Allocates everything, zeroed; or takes over a previous process's state. RESOURCE_EXHAUSTED has
  // the daemon's words. `layout` outlives the store.
  static absl::StatusOr<std::unique_ptr<StateStore>> Create(Session* session, const Layout& layout,
                                                            const StateStoreOptions& options);

  // One extent. If it is on disk, only its weight.
  using View = StateView;
  View Current(uint32_t granule) const { return extents_[current_[granule].load()].view; }
  // The granule's next version is written here.
  View Spare(uint32_t granule) const { return extents_[spare_[SpareOf(granule)]].view; }

  // Makes the spare the granule's extent. It holds the newest state, made by `epoch`. Everything
  // written to it before is visible to any thread that sees the flip.
  void Flip(uint32_t granule, uint64_t epoch);

  // The optimizer's numbers per tensor, in two versions. A step writes the spare version before its
  // commit record, then flips. So if this version's epoch is older than the newest record's, the
  // spare version belongs to that record. Null if there are none.
  std::byte* TensorState() const { return tensor_states_.addresses[tensor_states_.current]; }
  std::byte* SpareTensorState() const {
    return tensor_states_.addresses[1 - tensor_states_.current];
  }
  void FlipTensorState(uint64_t epoch);

  // --- for replacement processes: state_store_resume.cc ---
  // is_claimed(): the store has a previous process's chunks. left(): OK if training can go on from
  // their contents, which the newest commit record and the version words describe. Otherwise the
  // error says why not, and the store must be freed and made anew.
  bool is_claimed() const { return previous_.claimed; }
  const absl::Status& left() const { return previous_.status; }
  // Whether a replacement may resume from here. Call this after each commit and after other
  // changes.
  void SetResumable(bool resumable) { commit_->header.resumable.store(resumable ? 1 : 0); }
  // Trained granules that no step from `epoch` on has updated.
  std::vector<uint32_t> GranulesBefore(uint64_t epoch) const;
  bool IsTensorStateBefore(uint64_t epoch) const;
  shm::CommitSegment* commit() const { return commit_; }
  StepNotes* notes() { return notes_.has_value() ? &*notes_ : nullptr; }

  // In the arena if the device updates any state; else null. Undefined contents between steps.
  float* DeviceScales() const { return scratch_.device_scales; }

  // StateStoreOptions::workspace_bytes, aligned to a cache line. Undefined contents between
  // updates.
  std::span<std::byte> Workspace() const { return scratch_.workspace; }

  // `bytes` has tensor_state_bytes. These calls wait for computations on the tensor state.
  absl::Status ReadTensorState(std::span<std::byte> bytes) const;
  absl::Status WriteTensorState(std::span<const std::byte> bytes);
  absl::Status WriteSpareTensorState(std::span<const std::byte> bytes);

  // The reduced gradient of a granule, of the weight's type; fp32 when accumulating.
  std::byte* Gradient(uint32_t granule) const { return gradients_.places[granule]; }
  // Sets the gradient's address until the update, for a granule without a place of its own.
  void SetGradient(uint32_t granule, std::byte* gradient) { gradients_.places[granule] = gradient; }
  DataType GradientType(uint32_t granule) const {
    return options_.accumulate ? DataType::kFloat32 : extents_[current_[granule].load()].form.type;
  }

  // The sum of the trained chunk's gradients: fp32, all elements, in the arena. Null: gradients are
  // not summed before they are reduced. The first contents are undefined.
  float* GradientSum(uint32_t chunk) const {
    return gradients_.sums.empty() ? nullptr : gradients_.sums[chunk];
  }

  // Returns all memory except disk_count to the session, and deletes files on disk. No other
  // function may be called after this.
  absl::Status Free();

  // The chunks for transfers. The weight's chunk changes with each flip.
  ChunkId WeightChunk(uint32_t granule) const { return extents_[current_[granule].load()].weight; }
  ChunkId GradientChunk(uint32_t granule) const { return gradients_.chunks[granule]; }
  // The chunks of an extent: weight, remainder, the optimizer's arrays. kNoChunk for missing ones.
  using ExtentChunks = std::array<ChunkId, 2 + kMaxStateArrays>;
  ExtentChunks CurrentChunks(uint32_t granule) const {
    return ChunksIn(extents_[current_[granule].load()]);
  }
  ExtentChunks SpareChunks(uint32_t granule) const {
    return ChunksIn(extents_[spare_[SpareOf(granule)]]);
  }

  uint32_t landing_places() const { return options_.landing_places; }
  // When accumulating: the place where the `index`-th granule of a shard lands before it is added.
  // Otherwise: the `index`-th landing place. Each is large enough for a granule of any type.
  ChunkId StagingChunk(uint32_t index) const { return gradients_.staging_chunks[index]; }
  std::byte* Staging(uint32_t index) const { return gradients_.staging[index]; }

  // Whether the chunk's state lives in the arena and is used there, not at its home.
  bool on_device(uint32_t chunk) const {
    return granule_on_device(layout_.chunks[chunk].first_granule);
  }
  bool granule_on_device(uint32_t granule) const { return TierOf(granule) == kDevice; }
  // Whether the device updates the state, which lies on the host.
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
  // Call this after a read of a granule on disk. After DATA_LOSS no replacement resumes from the
  // state.
  void NoteRead(const absl::Status& read) const {
    if (absl::IsDataLoss(read)) commit_->header.resumable.store(0);
  }
  // DiskState::Use of a granule on disk, followed by NoteRead.
  absl::Status UseOnDisk(uint32_t granule, bool writes,
                         const std::function<absl::Status(const StateView&)>& use) const;
  // Bytes written by all processes of the run. Free leaves it, for another store of this process.
  const std::shared_ptr<DiskCount>& disk_count() const { return disk_.count; }
  GranuleOnDisk OnDisk(uint32_t granule) const;
  uint32_t SpareExtent(uint32_t granule) const { return spare_[SpareOf(granule)]; }
  uint64_t WeightBytes(uint32_t granule) const {
    return chunks_.session().Bytes(WeightChunk(granule));
  }

  // Whether the granule's state is fetched from elsewhere before its update
  // (client/zero/update/updates_ahead.h).
  bool granule_fetched(uint32_t granule) const {
    return granule_on_disk(granule) || granule_streamed(granule);
  }
  // The number of the optimizer's arrays for the granule, wherever they are.
  size_t arrays_of(uint32_t granule) const;
  const ComputePlace& device_compute() const { return compute_->on_device(); }
  // The place that computes on a granule's state; and on numbers per tensor, which use all state.
  const ComputePlace& ComputeOf(uint32_t granule) const {
    return compute_->Of(granule_on_device(granule));
  }
  const ComputePlace& ComputeOfTensors() const {
    return compute_->Of(any_on_device() || any_streamed());
  }
  bool any_on_device() const { return chunks_.any_kept(); }
  // The arena bytes that MoveToDevice would take: for a chunk, and once if any chunk is trained.
  uint64_t device_bytes_of(uint32_t chunk) const;
  uint64_t device_spare_bytes() const;
  // Copies the chunks' state to the lowest free places of the arena, and uses it there from now on.
  // The homes have older copies then. Call this at most once, while nothing is transferred or
  // updated.
  absl::Status MoveToDevice(std::span<const uint32_t> chunks);
  // Chunks at the bottom of the arena for data that passes through them (StateChunks::PlaceOpen).
  // Call this before there is state above them. RESOURCE_EXHAUSTED has the daemon's words.
  absl::StatusOr<std::vector<ChunkId>> MakePlaces(const std::string& name, size_t count,
                                                  uint64_t bytes);
  // See StateChunks. Nothing may be transferred or updated until the state has returned.
  absl::Status PrepareToLeave() { return chunks_.PrepareToLeave(); }
  void CancelLeave() { chunks_.CancelLeave(); }
  absl::Status LeaveDevice() { return chunks_.Leave(); }
  absl::Status ReturnToDevice() { return chunks_.Return(); }
  // Instead of ReturnToDevice: no further update follows.
  void StayOnHost();

  // Weights, remainders, the optimizer's arrays and numbers per tensor; spares not included.
  uint64_t model_state_bytes() const { return model_state_bytes_; }
  // The bytes of all chunks that live on the device, of gradient sums, and of MakePlaces.
  uint64_t device_bytes() const { return chunks_.device_bytes(); }

 private:
  enum Tier { kHost, kDevice };

  static constexpr size_t kForms = 4 * kTrainedTypes;

  // Chunks that an extent lacks are kNoChunk.
  struct Extent {
    ChunkId weight = kNoChunk;
    ChunkId remainder = kNoChunk;
    std::array<ChunkId, kMaxStateArrays> arrays = {kNoChunk, kNoChunk};
    Tier tier = kHost;
    StateForm form{};
    View view{};  // addresses of these chunks
  };
  StateStore(Session* session, const Layout& layout, const StateStoreOptions& options);
  absl::Status Allocate();
  void TakeExtents(const StateList& list, const std::vector<ChunkId>& ids);
  void TakeGranules(const StateList& list, const std::vector<ChunkId>& ids);
  bool keeps_gradient(const ChunkShape& chunk) const {
    return chunk.trainable && options_.landing_places == 0;
  }
  Extent MakeExtent(const ExtentSlots& slots, const std::vector<ChunkId>& ids, Tier tier) const;
  absl::Status ChargeDisk(const StateList& list);
  absl::Status MakeDisk(const StateList& list, const std::vector<ChunkId>& ids);
  // Sets options_.on_disk from a previous process's note, if there is one.
  absl::Status ClaimNoteOfDisk();
  absl::Status NoteDisk();
  const shm::CommitRecord* StepOfPrevious() const;
  uint32_t OptimizerNumber() const;
  absl::Status CheckOptimizer() const;
  absl::Status CheckNoPreviousState(const std::string& missing) const;
  // Claims a previous process's chunks, if they are wanted and there; else allocates new ones.
  absl::StatusOr<std::vector<ChunkId>> ObtainChunks(StateList* list);
  absl::Status NoteWhatIsLeft(absl::Status found);
  absl::Status ObtainNotes();
  std::vector<ExtentSlots> DeviceSpareSlots(std::vector<ChunkSpec>* specs) const {
    return AddSpares(layout_, options_, /*has_home=*/false, "device spare", specs);
  }
  absl::Status TakeUp();
  // By device spare: the granule whose newest state is there, if any.
  using OnDeviceSpares = std::vector<std::optional<uint32_t>>;
  absl::Status ReadVersions(std::vector<bool>* used, OnDeviceSpares* on_device_spares);
  absl::Status CopyAllHome();
  absl::Status CopyHome(ChunkId from, ChunkId to);
  absl::Status FreeDeviceSpare();
  absl::Status TakeFromDeviceSpare(const ExtentSlots& spare, uint32_t granule,
                                   std::vector<bool>* used);
  absl::Status FindSpares(const std::vector<bool>& used);
  // An extent of the form that no granule uses.
  std::optional<uint32_t> UnusedExtent(const StateForm& form, const std::vector<bool>& used) const;
  absl::Status MakeDeviceSpares();
  absl::Status MakeDeviceScales();
  absl::Status MakeWorkspace();
  absl::Status MakeGradientSums();
  // Allocates chunks in the arena whose contents are not part of the state. They are not in the
  // list that a replacement process claims.
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

  // The state of a previous process.
  struct PreviousState {
    bool claimed = false;
    absl::Status status;
    std::vector<ChunkId> device_spare;  // if it had one
    ChunkId note_of_disk = kNoChunk;
    std::vector<bool> chosen_on_disk;  // this process's choice, if there is a note
  };
  struct Disk {
    std::shared_ptr<DiskCount> count;
    std::unique_ptr<DiskState> state;
  };
  // Reduced gradients: by granule, and the places where gradients without their own place land.
  struct Gradients {
    std::vector<ChunkId> chunks;
    std::vector<std::byte*> places;
    std::vector<ChunkId> staging_chunks;
    std::vector<std::byte*> staging;
    std::vector<float*> sums;  // by chunk
  };
  // The optimizer's memory. Its contents between updates are undefined.
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
  PreviousState previous_;
  std::optional<StepNotes> notes_;
  uint64_t model_state_bytes_ = 0;
  Disk disk_;
  std::unique_ptr<Compute> compute_;  // last member: its destructor finishes the work
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STATE_STATE_STORE_H_
