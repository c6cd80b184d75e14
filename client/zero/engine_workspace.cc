// Workspace that grows beyond what is reserved: chunks make way for it, or it lies between them.
#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "client/zero/core/extent.h"
#include "client/zero/engine_impl.h"

namespace geminid::zero {

EngineImpl::Placing::Placing(EngineImpl* engine)
    : engine_(engine), workspace_bytes_(engine->workspace_->Pause()) {}

EngineImpl::Placing::~Placing() {
  engine_->workspace_->SetReserved(engine_->mover_->reserved_bytes());
}

// While sampling that is how the sample is taken; under a plan it means that the sample was too
// small, so that this micro-batch is the next one.
absl::Status EngineImpl::GrowWorkspace(uint64_t extent_bytes) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(HealthOnDevice());
  if (director_->following() && !director_->evaluating() &&
      extent_bytes > director_->followed().workspace_bytes(director_->moment())) {
    workspace_grew_ = true;
  }
  const Placing placing(this);
  const absl::StatusOr<Steps> steps = placer_->Reserve(
      std::max(extent_bytes, placing.workspace_bytes()), placer_->reserved_bytes(), Held());
  if (!steps.ok()) return Answer(DoesNotFit(Held(), extent_bytes));
  return Answer(Remember(mover_->Run(*steps, operation_, {})));
}

absl::StatusOr<std::byte*> EngineImpl::AllocateInHole(uint64_t bytes) {
  const Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(HealthOnDevice());
  uint32_t number = 0;
  while (hole_blocks_.contains(number)) ++number;
  const absl::StatusOr<Placer::Block> block = placer_->PlaceBlock(number, bytes, Held());
  if (!block.ok()) {
    return Answer(DoesNotFit(Held(), workspace_->in_use_bytes() + bytes));
  }
  if (director_->following() && !director_->evaluating()) workspace_grew_ = true;
  HoleBlock made;
  const uint64_t extent = RoundUpToExtent(bytes);
  absl::Status status = mover_->Run(block->steps, operation_, {});
  if (status.ok()) status = mover_->WaitClear(block->offset, block->offset + extent);
  if (!status.ok()) return Remember(status);
  const absl::StatusOr<std::vector<ChunkHandle>> chunk =
      session_->Allocate({{"workspace", ChunkKind::kGeneric, extent, /*has_home=*/false}});
  if (!chunk.ok()) return Remember(chunk.status());
  made.chunk = chunk->front().id;
  status = session_->AllocateExtent(made.chunk, block->offset, /*may_evict=*/true)
               .Wait(options_.timeout);
  if (status.ok()) status = session_->Publish(made.chunk).Wait(options_.timeout);
  if (!status.ok()) return Remember(status);
  made.lease = session_->TryLease(made.chunk);
  made.data = session_->arena() + block->offset;
  made.extent_bytes = extent;
  std::byte* const data = made.data;
  hole_blocks_.emplace(number, std::move(made));
  refused_ = absl::OkStatus();
  return data;
}

void EngineImpl::FreeInHole(std::byte* data) {
  const Lock lock(mutex_);
  for (auto at = hole_blocks_.begin(); at != hole_blocks_.end(); ++at) {
    if (at->second.data != data) continue;
    at->second.lease.reset();
    const ChunkId chunk = at->second.chunk;
    absl::Status status = session_->Drop(chunk).Wait(options_.timeout);
    if (status.ok()) status = session_->Free(std::vector<ChunkId>{chunk});
    const uint64_t begin = static_cast<uint64_t>(data - session_->arena());
    mover_->CloseUntilStreamsPass(begin, begin + at->second.extent_bytes);
    placer_->FreeBlock(at->first);
    hole_blocks_.erase(at);
    (void)Remember(status);
    return;
  }
}

}  // namespace geminid::zero
