// Updates in the backward pass. Reduced gradients go home granule by granule, through a few landing
// places, where the update reads them. A chunk's extent is free when its last granule has landed.
// The device's updates read the gradient in the extent itself.
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/zero/residency/diverged.h"
#include "client/zero/residency/mover.h"

namespace geminid::zero {

absl::Status Mover::StartUpdate(const Task& task) {
  GEMINID_RETURN_IF_ERROR(CheckFinite(task.chunk));
  const ChunkShape& shape = Shape(task.chunk);
  const uint32_t owner = LayoutChunk(task.chunk);
  const bool by_device = context_.store->on_device(owner) || context_.store->streamed(owner);
  context_.updates->Expect(owner);
  {
    std::lock_guard lock(mutex_);
    queue_.Copying(task.chunk, shape.granules);
    gradients_.Expect(task.chunk, shape.granules, /*land=*/!by_device);
  }
  if (!by_device) {
    StartLandings();
    return absl::OkStatus();
  }
  for (uint32_t g = 0; g < shape.granules; ++g) {
    context_.store->SetGradient(shape.first_granule + g,
                                Shard(task.chunk) + g * shape.granule_bytes());
    Update({task.chunk, g}, [this, chunk = task.chunk] { GranuleLeft(chunk); });
  }
  return absl::OkStatus();
}

// Some of the step's updates may be made already, so the step can be neither committed nor undone.
absl::Status Mover::CheckFinite(uint32_t chunk) const {
  std::lock_guard lock(mutex_);
  if (gradients_.IsFinite(Shape(chunk))) return absl::OkStatus();
  return MarkDiverged(absl::DataLossError(absl::StrCat(
      "a gradient is not finite, of ", context_.names(LayoutChunk(chunk)),
      ": training diverges. Parameters whose gradients came before are updated already, in the "
      "backward pass, so this step cannot be given up; go on from the last checkpoint, with a "
      "lower learning rate, or update after the step, where such a step changes nothing")));
}

void Mover::StartLandings() {
  for (;;) {
    std::optional<GradientLanding> next;
    {
      std::lock_guard lock(mutex_);
      if (status_.ok()) next = gradients_.TakeLanding();
    }
    if (!next.has_value()) return;
    StartLanding(*next);
  }
}

void Mover::StartLanding(const GradientLanding& landing) {
  const ChunkShape& shape = Shape(landing.chunk);
  const uint64_t bytes = shape.granule_bytes();
  context_.store->SetGradient(shape.first_granule + landing.index,
                              context_.store->Staging(landing.place));
  const Copy copy = {.chunk = landing.chunk,
                     .begin = ShardOffset(landing.chunk) + landing.index * bytes,
                     .part_bytes = bytes,
                     .cause = TransferCause::kWriteBack};
  StartCopy(
      copy, [&](uint32_t) { return context_.store->StagingChunk(landing.place); },
      [this, landing](uint32_t) {
        GranuleLeft(landing.chunk);
        Update(landing, [this, landing] {
          {
            std::lock_guard lock(mutex_);
            gradients_.FreePlace(landing.place);
          }
          StartLandings();
        });
      });
}

// `used_up` is called on the updater's thread when nothing reads the gradient any more.
void Mover::Update(const GradientLanding& landed, std::function<void()> used_up) {
  const uint32_t granule = Shape(landed.chunk).first_granule + landed.index;
  context_.updates->Add(LayoutChunk(landed.chunk), granule, [this, used_up = std::move(used_up)] {
    used_up();
    {
      std::lock_guard lock(mutex_);
      gradients_.GranuleUpdated();
    }
    Changed();
  });
}

// True if that was the chunk's last granule: then its extent is free.
bool Mover::GranuleLeft(uint32_t chunk) {
  {
    std::lock_guard lock(mutex_);
    if (!queue_.CopyEnded(chunk)) return false;
    queue_.Leaving(chunk);
  }
  ReleaseExtent(chunk);
  return true;
}

}  // namespace geminid::zero
