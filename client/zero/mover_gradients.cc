// Gradients on their way from the device to where the update reads them.
#include <algorithm>
#include <vector>

#include "base/status_macros.h"
#include "client/zero/data_types.h"
#include "client/zero/mover.h"

namespace geminid::zero {

absl::Status Mover::RunReduce(const Task& task) {
  if (context_.summed > 1) {
    GEMINID_RETURN_IF_ERROR(AddToSum(task));
    if (!task.last) {
      LeaveExtent(task.chunk);
      return absl::OkStatus();
    }
  }
  GEMINID_RETURN_IF_ERROR(ReduceScatter(task));
  if (context_.accumulate == 1) GEMINID_RETURN_IF_ERROR(MeasureShard(task.chunk));
  if (context_.updates != nullptr) return StartUpdate(task);
  if (!context_.store->on_device(LayoutChunk(task.chunk))) {
    StartGradientCopies(task);
    return absl::OkStatus();
  }
  const uint64_t bytes = Shape(task.chunk).granule_bytes();
  GEMINID_RETURN_IF_ERROR(
      KeepGradient(task, [&](uint32_t g) { return Shard(task.chunk) + g * bytes; }));
  LeaveExtent(task.chunk);
  return absl::OkStatus();
}

void Mover::LeaveExtent(uint32_t chunk) {
  {
    std::lock_guard lock(mutex_);
    queue_.Leaving(chunk);
  }
  ReleaseExtent(chunk);
}

// The mean over the micro-batches, which replaces the last one's gradient: rounded once.
absl::Status Mover::AddToSum(const Task& task) {
  const ChunkShape& shape = Shape(task.chunk);
  float* const sum = context_.store->GradientSum(LayoutChunk(task.chunk));
  auto* const bytes = reinterpret_cast<std::byte*>(sum);
  const ComputePlace& place = compute_->on_device();
  std::byte* const gradient = Extent(task.chunk);
  if (task.first) place.ops->Zero(*place.stream, bytes, shape.elements * sizeof(float));
  place.ops->Accumulate(*place.stream, {gradient, shape.elements, DTypeOf(shape)},
                        1.0f / static_cast<float>(context_.summed), sum);
  if (task.last) {
    place.ops->Assign(*place.stream, {bytes, shape.elements, collectives::DType::kFloat32},
                      gradient, DTypeOf(shape));
  }
  return place.Finish();
}

// The mean over the ranks, formed in fp32 and rounded once.
absl::Status Mover::ReduceScatter(const Task& task) {
  const int world_size = context_.communicator->WorldSize();
  if (world_size == 1) return absl::OkStatus();
  LabelCollective(task);
  const collectives::DType type = DTypeOf(Shape(task.chunk));
  const uint64_t elements = Shape(task.chunk).elements;
  const uint64_t shard = elements / static_cast<uint64_t>(world_size);
  std::byte* const extent = Extent(task.chunk);
  GEMINID_ASSIGN_OR_RETURN(const Ranks ranks, RanksFor(GroupOf(task), extent));
  if (ranks.communicator == nullptr) {
    return exchange_.Average({context_.gathered[task.chunk], extent, elements, type});
  }
  return ranks.communicator->ReduceScatter({ranks.data, elements, type},
                                           {ranks.data + ShardOffset(task.chunk), shard, type},
                                           collectives::ReduceOp::kSum, {1.0 / world_size});
}

absl::Status Mover::MeasureShard(uint32_t chunk) {
  const ChunkShape& shape = Shape(chunk);
  return Measure(shape, compute_->on_device(), DTypeOf(shape),
                 [&](uint32_t g) { return Shard(chunk) + g * shape.granule_bytes(); });
}

absl::Status Mover::MeasureKept(const ChunkShape& shape, bool on_device) {
  const DataType type = context_.store->GradientType(shape.first_granule);
  return Measure(shape, compute_->Of(on_device), ToDType(type),
                 [&](uint32_t g) { return context_.store->Gradient(shape.first_granule + g); });
}

absl::Status Mover::Measure(const ChunkShape& shape, const ComputePlace& place,
                            collectives::DType type, const GranulePlaces& gradients) {
  auto squares = std::make_shared<std::vector<double>>(shape.granules);
  for (uint32_t g = 0; g < shape.granules; ++g) {
    place.ops->SumSquares(*place.stream, {gradients(g), shape.granule_elements, type},
                          &(*squares)[g]);
  }
  place.Keep(squares);
  GEMINID_RETURN_IF_ERROR(place.Finish());
  std::lock_guard lock(mutex_);
  std::ranges::copy(*squares, squares_.begin() + shape.first_granule);
  return absl::OkStatus();
}

// Where the gradient stays until the update: on the device, or added to the fp32 sum.
absl::Status Mover::KeepGradient(const Task& task, const GranulePlaces& source) {
  const ChunkShape& shape = Shape(task.chunk);
  const bool on_device = context_.store->on_device(LayoutChunk(task.chunk));
  const ComputePlace& place = compute_->Of(on_device);
  const uint64_t elements = shape.granule_elements;
  for (uint32_t g = 0; g < shape.granules; ++g) {
    std::byte* const kept = context_.store->Gradient(shape.first_granule + g);
    if (context_.accumulate == 1) {
      place.ops->Copy(*place.stream, kept, source(g), shape.granule_bytes());
      continue;
    }
    if (task.first) place.ops->Zero(*place.stream, kept, elements * sizeof(float));
    place.ops->Accumulate(*place.stream, {source(g), elements, DTypeOf(shape)},
                          1.0f / static_cast<float>(context_.accumulate),
                          reinterpret_cast<float*>(kept));
  }
  GEMINID_RETURN_IF_ERROR(place.Finish());
  return context_.accumulate > 1 && task.last ? MeasureKept(shape, on_device) : absl::OkStatus();
}

void Mover::StartGradientCopies(const Task& task) {
  const ChunkShape& shape = Shape(task.chunk);
  const bool staged = context_.accumulate > 1;
  {
    std::lock_guard lock(mutex_);
    copies_pending_[task.chunk] = shape.granules;
    if (staged) ++adding_;
  }
  for (uint32_t g = 0; g < shape.granules; ++g) {
    TransferSpec spec;
    spec.source = context_.gathered[task.chunk];
    spec.source_offset = ShardOffset(task.chunk) + g * shape.granule_bytes();
    spec.destination = staged ? context_.store->StagingChunk(g)
                              : context_.store->GradientChunk(shape.first_granule + g);
    spec.bytes = shape.granule_bytes();
    spec.cause = TransferCause::kWriteBack;
    spec.priority = Priority::kNormal;
    context_.session->Transfer(spec).Then(Later([this, task](const absl::Status& status) {
      if (status.ok()) GradientCopyDone(task);
    }));
  }
}

// What was staged is added to the sum beside the stream's operations, not by the session's thread.
void Mover::GradientCopyDone(const Task& task) {
  {
    std::lock_guard lock(mutex_);
    if (--copies_pending_[task.chunk] > 0) return;
    queue_.Leaving(task.chunk);
  }
  ReleaseExtent(task.chunk);
  if (context_.accumulate == 1) return;
  After(compute_->on_device(), [this, task] {
    const absl::Status status =
        KeepGradient(task, [this](uint32_t g) { return context_.store->Staging(g); });
    std::lock_guard lock(mutex_);
    --adding_;
    return status;
  });
}

// The stream's work must be through with it, and the staging area be free.
bool Mover::MayReduce(uint32_t chunk) const {
  return usages_[chunk].stays.front().points.empty() && adding_ == 0;
}

// What Measure found before may have been another micro-batch's.
absl::Status Mover::MeasureGradients() {
  for (uint32_t chunk = 0; chunk < context_.layout->chunks.size(); ++chunk) {
    const ChunkShape& shape = context_.layout->chunks[chunk];
    if (!shape.trainable) continue;
    GEMINID_RETURN_IF_ERROR(MeasureKept(shape, context_.store->on_device(chunk)));
  }
  return absl::OkStatus();
}

}  // namespace geminid::zero
