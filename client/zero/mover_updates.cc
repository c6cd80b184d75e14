// Updates in the backward pass: what is reduced goes home granule by granule, through a few landing
// places, and is used up there. A chunk's extent is free when its last granule has landed.
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/zero/mover.h"

namespace geminid::zero {

absl::Status Mover::StartUpdate(const Task& task) {
  GEMINID_RETURN_IF_ERROR(CheckFinite(task.chunk));
  const ChunkShape& shape = Shape(task.chunk);
  const uint32_t owner = LayoutChunk(task.chunk);
  const bool on_device = context_.store->on_device(owner);
  context_.updates->Expect(owner);
  {
    std::lock_guard lock(mutex_);
    copies_pending_[task.chunk] = shape.granules;
    updating_ += shape.granules;
    for (uint32_t g = 0; !on_device && g < shape.granules; ++g) {
      landing_.push_back({task.chunk, g});
    }
  }
  if (!on_device) {
    StartLandings();
    return absl::OkStatus();
  }
  for (uint32_t g = 0; g < shape.granules; ++g) {
    context_.store->SetGradient(shape.first_granule + g,
                                Shard(task.chunk) + g * shape.granule_bytes());
    Update({task.chunk, g}, [this, chunk = task.chunk] { GradientLeft(chunk); });
  }
  return absl::OkStatus();
}

// Half of the step's updates may be made already: then it can be neither committed nor undone.
absl::Status Mover::CheckFinite(uint32_t chunk) const {
  std::lock_guard lock(mutex_);
  if (IsFiniteLocked(chunk)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "a gradient is not finite, of ", context_.names(LayoutChunk(chunk)),
      ": training diverges. Parameters whose gradients came before are updated already, in the "
      "backward pass, so this step cannot be given up; go on from the last checkpoint, with a "
      "lower learning rate, or update after the step, where such a step changes nothing"));
}

void Mover::StartLandings() {
  for (;;) {
    Landing next;
    uint32_t place = 0;
    {
      std::lock_guard lock(mutex_);
      if (stop_ || !status_.ok() || landing_.empty() || free_places_.empty()) return;
      next = landing_.front();
      landing_.pop_front();
      place = free_places_.back();
      free_places_.pop_back();
    }
    context_.store->SetGradient(Shape(next.chunk).first_granule + next.index,
                                context_.store->Staging(place));
    TransferSpec spec;
    spec.source = context_.gathered[next.chunk];
    const uint64_t bytes = Shape(next.chunk).granule_bytes();
    spec.source_offset = ShardOffset(next.chunk) + next.index * bytes;
    spec.destination = context_.store->StagingChunk(place);
    spec.bytes = bytes;
    spec.cause = TransferCause::kWriteBack;
    spec.priority = Priority::kNormal;
    context_.session->Transfer(spec).Then(Later([this, next, place](const absl::Status& status) {
      if (!status.ok()) return;
      GradientLeft(next.chunk);
      Update(next, [this, place] {
        {
          std::lock_guard lock(mutex_);
          free_places_.push_back(place);
        }
        StartLandings();
      });
    }));
  }
}

// `used_up`, on the updater's thread: nothing reads the gradient any more.
void Mover::Update(const Landing& landed, std::function<void()> used_up) {
  const uint32_t granule = Shape(landed.chunk).first_granule + landed.index;
  context_.updates->Add(LayoutChunk(landed.chunk), granule, [this, used_up = std::move(used_up)] {
    used_up();
    {
      std::lock_guard lock(mutex_);
      --updating_;
    }
    Changed();
  });
}

// One granule of it has.
void Mover::GradientLeft(uint32_t chunk) {
  {
    std::lock_guard lock(mutex_);
    if (--copies_pending_[chunk] > 0) return;
    queue_.Leaving(chunk);
  }
  ReleaseExtent(chunk);
}

}  // namespace geminid::zero
