// Owns every place of this rank's arena: chunks, blocks of workspace, and the reservation
// at its top. The Director says what moves, Residency says where to, and the mover executes
// it.
#ifndef GEMINID_CLIENT_ZERO_RESIDENCY_RESIDENCY_H_
#define GEMINID_CLIENT_ZERO_RESIDENCY_RESIDENCY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/zero/basics/arena_meter.h"
#include "client/zero/basics/compute.h"
#include "client/zero/core/director.h"
#include "client/zero/core/placer.h"
#include "client/zero/options/engine_setup.h"
#include "client/zero/residency/mover.h"
#include "client/zero/residency/offloaded_activations.h"
#include "client/zero/residency/saved_activations.h"
#include "client/zero/residency/workspace.h"
#include "geminid/session.h"

namespace geminid::zero {

// Used by one thread at a time, except blocks of workspace within the reservation.
class Residency {
 public:
  // How the engine reacts if another thread's block finds no room in the reservation: it locks, and
  // calls Grow and the functions after it below.
  struct Calls {
    ArenaWorkspace::Grow grow;
    ArenaWorkspace::Holes holes;
    // Ends the engine with an error of a failed move. Returns the error.
    std::function<absl::Status(const absl::Status&)> fail;
  };
  // `owners`: by chunk on the device, the chunk of the layout. All arguments outlive it.
  Residency(const EngineSetup& setup, const Director& director, const std::vector<uint32_t>& owners,
            Calls calls);

  // Call before anything moves.
  absl::Status Start(MoverContext context);
  // Ends all moves. False: streams of the trainer may still use chunks on the device.
  bool Stop();
  // After Stop: chunks that this object allocated, for the caller to free. Copies from and to them
  // may still be in progress.
  const std::vector<ChunkId>& left() const { return left_; }

  Mover& mover() const { return *mover_; }
  ArenaWorkspace& workspace() { return workspace_; }
  const ArenaMeter& meter() const { return meter_; }
  // For the trainer's thread.
  const ComputePlace& compute() const { return compute_->on_device(); }

  // The optimizer's state takes so many bytes of the arena's bottom.
  void SetStateBytes(uint64_t bytes);
  // Whether chunks or blocks lie outside the reservation.
  bool AnythingLies() const { return placer_.used_bytes() > 0; }
  bool AnyBlockInHoles() const { return !hole_blocks_.empty(); }

  // Numbers operators within a micro-batch, for messages.
  void BeginMicroBatch() { operation_ = 0; }
  // An operator begins: later moves are for it.
  void BeginOperator(uint64_t moment, Stream* stream);
  // A moment begins within an operator.
  void BeginMoment(uint64_t moment, Stream* stream);

  // The places of `activations` are chunks below the placer's floor.
  void KeepActivations(std::unique_ptr<OffloadedActivations> activations) {
    activations_ = std::move(activations);
  }
  // Null if there are none.
  OffloadedActivations* activations() const { return activations_.get(); }
  void KeepSavedActivations(std::unique_ptr<SavedActivations> saved) { saved_ = std::move(saved); }
  SavedActivations* saved_activations() const { return saved_.get(); }

  // --- places ---

  // Lives while chunks are placed. Until it ends, other threads get no workspace beyond the bytes
  // that were in use when it began; their requests wait.
  class PlacementScope {
   public:
    explicit PlacementScope(Residency* residency)
        : residency_(*residency), workspace_bytes_(residency->workspace_.Pause()) {}
    ~PlacementScope() { residency_.GrantReserved(); }
    PlacementScope(const PlacementScope&) = delete;
    PlacementScope& operator=(const PlacementScope&) = delete;

    uint64_t workspace_bytes() const { return workspace_bytes_; }

   private:
    Residency& residency_;
    const uint64_t workspace_bytes_;
  };

  // Whether an operator may hold all `chunks` beside the held ones and this workspace. If not,
  // RESOURCE_EXHAUSTED, and nothing has changed.
  absl::Status CheckFits(const std::vector<uint32_t>& chunks, uint64_t workspace_bytes) const;
  absl::Status Move(const Moves& moves, MicroBatchPosition position = {});
  // The workspace to reserve between the moves that make room and the loads.
  struct Room {
    std::vector<uint32_t> chunks{};  // that will be on the device in the end
    uint64_t workspace_bytes = 0;
    uint64_t wanted_bytes = 0;  // workspace up to this size if that needs no further eviction
    // Others are evicted if workspace could otherwise not grow to this size beside the chunks.
    uint64_t enough_bytes = 0;
    bool held_already = false;  // the chunks' operator holds them already
  };
  absl::Status MoveWithRoom(const Moves& moves, const Room& room);
  // Ends the workspace's reservation; no workspace may be in use.
  absl::Status GiveWorkspaceUp();
  uint64_t reserved_bytes() const { return placer_.reserved_bytes(); }
  std::byte* Address(uint32_t chunk, uint32_t tensor) const;

  // Waits until the chunks can be leased.
  absl::Status WaitResident(const std::vector<uint32_t>& chunks);
  // An operator holds the chunks from now on. With a stream: its later work waits for them.
  absl::Status Hold(const std::vector<uint32_t>& chunks, Stream* stream);

  // --- workspace beyond the reservation; RESOURCE_EXHAUSTED: held chunks are in the way ---

  absl::Status Grow(uint64_t extent_bytes);
  absl::StatusOr<std::byte*> AllocateInHole(uint64_t bytes);
  void FreeInHole(std::byte* data);

 private:
  // A block of workspace outside the reservation, in a chunk of the session.
  struct HoleBlock {
    ChunkId chunk = kNoChunk;
    std::byte* data = nullptr;
    uint64_t extent_bytes = 0;
    std::optional<Lease> lease;
  };

  Placer::IsHeld Held() const {
    return [this](uint32_t chunk) { return director_.holders(chunk) > 0; };
  }
  absl::Status Run(const Steps& steps, MicroBatchPosition position = {});
  absl::Status RunAll(const absl::StatusOr<Steps>& steps, const Placer::IsHeld& needed,
                      uint64_t workspace_bytes);
  void GrantReserved();
  absl::Status PublishBlock(uint64_t offset, HoleBlock* block);
  // `needed`: chunks that may not leave.
  absl::Status DoesNotFit(const Placer::IsHeld& needed, uint64_t workspace_bytes) const;

  const EngineSetup& setup_;
  const Director& director_;
  const std::vector<uint32_t>& owners_;
  const Calls calls_;
  Placer placer_;
  ArenaMeter meter_;
  ArenaWorkspace workspace_;
  std::unique_ptr<Compute> compute_;
  std::unique_ptr<Mover> mover_;
  std::unique_ptr<OffloadedActivations> activations_;
  std::unique_ptr<SavedActivations> saved_;
  std::map<uint32_t, HoleBlock> hole_blocks_;  // by their numbers in the Placer
  std::vector<ChunkId> left_;                  // see left()
  uint64_t operation_ = 0;                     // operators that have begun in this micro-batch
  uint32_t moment_ = 0;                        // that moves are for
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_RESIDENCY_RESIDENCY_H_
