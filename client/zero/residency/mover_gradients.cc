// Moves gradients from the device to where the update reads them.
#include <vector>

#include "base/status_macros.h"
#include "client/zero/basics/data_types.h"
#include "client/zero/residency/mover.h"

namespace geminid::zero {

absl::Status Mover::RunReduce(const Task& task) {
  if (measures_own_gradients()) GEMINID_RETURN_IF_ERROR(MeasureOwn(task.chunk));
  if (context_.summed > 1) {
    GEMINID_RETURN_IF_ERROR(AddToSum(task));
    if (!task.last) {
      LeaveExtent(task.chunk);
      return absl::OkStatus();
    }
  }
  GEMINID_RETURN_IF_ERROR(collectives_.Average(InCollective(task, Extent(task.chunk))));
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

// Forms the mean over the micro-batches, rounded once. It replaces the last one's gradient.
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

// Measures the whole chunk before the reduction overwrites it.
absl::Status Mover::MeasureOwn(uint32_t chunk) {
  const ChunkShape& shape = Shape(chunk);
  const ComputePlace& place = compute_->on_device();
  auto square = std::make_shared<double>(0);
  place.ops->SumSquares(*place.stream, {Extent(chunk), shape.elements, DTypeOf(shape)},
                        square.get());
  place.Keep(square);
  GEMINID_RETURN_IF_ERROR(place.Finish());
  std::lock_guard lock(mutex_);
  gradients_.AddOwnSquare(LayoutChunk(chunk), *square);
  return absl::OkStatus();
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
  gradients_.SetSquares(shape, *squares);
  return absl::OkStatus();
}

// Stores the gradient until the update: copied on the device, or added to the fp32 sum.
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
  Copy copy = CopyOfShard(task, /*to_device=*/false);
  copy.cause = TransferCause::kWriteBack;
  {
    std::lock_guard lock(mutex_);
    queue_.Copying(task.chunk, copy.parts);
    if (staged) gradients_.BeginAdding();
  }
  StartCopy(
      copy,
      [&](uint32_t g) {
        return staged ? context_.store->StagingChunk(g)
                      : context_.store->GradientChunk(shape.first_granule + g);
      },
      [this, task](uint32_t) { GradientCopyDone(task); });
}

// Staged gradients are added to the sum on the stream's thread, not on the session's thread.
void Mover::GradientCopyDone(const Task& task) {
  if (!GranuleLeft(task.chunk) || context_.accumulate == 1) return;
  After(compute_->on_device(), [this, task] {
    const absl::Status status =
        KeepGradient(task, [this](uint32_t g) { return context_.store->Staging(g); });
    std::lock_guard lock(mutex_);
    gradients_.EndAdding();
    return status;
  });
}

// No work of the stream may use the chunk any more, and the staging area must be free.
bool Mover::MayReduce(uint32_t chunk) const {
  return leases_.OldestUnused(chunk) && !gradients_.adding();
}

// Earlier results of Measure may be those of another micro-batch.
absl::Status Mover::MeasureGradients() {
  for (uint32_t chunk = 0; chunk < context_.setup->layout.chunks.size(); ++chunk) {
    const ChunkShape& shape = context_.setup->layout.chunks[chunk];
    if (!shape.trainable) continue;
    GEMINID_RETURN_IF_ERROR(MeasureKept(shape, context_.store->on_device(chunk)));
  }
  return absl::OkStatus();
}

}  // namespace geminid::zero
