// Gradients on their way from the device to where the update reads them.
#include <cstring>

#include "base/status_macros.h"
#include "client/zero/mover.h"
#include "kernels/numeric/accumulate/accumulate.h"
#include "kernels/numeric/norm/norm.h"
#include "kernels/runtime/common/absl_status.h"

namespace geminid::zero {

absl::Status Mover::RunReduce(const Task& task) {
  GEMINID_RETURN_IF_ERROR(ReduceScatter(task));
  if (context_.accumulate == 1) GEMINID_RETURN_IF_ERROR(MeasureShard(task.chunk));
  if (!context_.store->on_device(LayoutChunk(task.chunk))) {
    StartGradientCopies(task);
    return context_.accumulate > 1 ? AccumulateStaged(task) : absl::OkStatus();
  }
  GEMINID_RETURN_IF_ERROR(
      KeepGradient(task, [&](uint32_t g) { return Shard(task.chunk) + g * granule_bytes(); }));
  {
    std::lock_guard lock(mutex_);
    queue_.Leaving(task.chunk);
  }
  ReleaseExtent(task.chunk);
  return absl::OkStatus();
}

// The mean over the ranks, formed in fp32 and rounded once.
absl::Status Mover::ReduceScatter(const Task& task) {
  const int world_size = context_.communicator->WorldSize();
  if (world_size == 1) return absl::OkStatus();
  LabelCollective(task);
  const collectives::DType type = collective_type();
  const uint64_t elements = Shape(task.chunk).elements;
  const uint64_t shard = elements / static_cast<uint64_t>(world_size);
  return context_.communicator->ReduceScatter({Extent(task.chunk), elements, type},
                                              {Shard(task.chunk), shard, type},
                                              collectives::ReduceOp::kSum, {1.0 / world_size});
}

absl::Status Mover::MeasureShard(uint32_t chunk) {
  const ChunkShape& shape = Shape(chunk);
  for (uint32_t g = 0; g < shape.granules; ++g) {
    absl::Status status = Measure(shape.first_granule + g, Shard(chunk) + g * granule_bytes(),
                                  context_.data_type == DataType::kFloat32);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Mover::Measure(uint32_t granule, const std::byte* gradient, bool is_float) {
  kernels::SquareSum sum;
  const uint64_t count = context_.layout->granule_elements;
  const kernels::Status status =
      is_float
          ? kernels::AddSquares(reinterpret_cast<const float*>(gradient), count, &sum)
          : kernels::AddSquares(reinterpret_cast<const kernels::BFloat16*>(gradient), count, &sum);
  std::lock_guard lock(mutex_);
  squares_[granule] = sum.sum;
  return FromKernel(status, "AddSquares");
}

// Where the gradient stays until the update: on the device, or added to the fp32 sum on the host.
absl::Status Mover::KeepGradient(const Task& task,
                                 const std::function<const std::byte*(uint32_t)>& source) {
  const ChunkShape& shape = Shape(task.chunk);
  for (uint32_t g = 0; g < shape.granules; ++g) {
    const uint32_t granule = shape.first_granule + g;
    if (context_.accumulate == 1) {
      std::memcpy(context_.store->Gradient(granule), source(g), granule_bytes());
      continue;
    }
    absl::Status status = AccumulateGranule(granule, source(g), task.first);
    if (status.ok() && task.last) {
      status = Measure(granule, context_.store->Gradient(granule), /*is_float=*/true);
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Mover::AccumulateGranule(uint32_t granule, const std::byte* gradient, bool first) {
  float* sum = reinterpret_cast<float*>(context_.store->Gradient(granule));
  const uint64_t count = context_.layout->granule_elements;
  if (first) std::memset(sum, 0, count * sizeof(float));
  const float scale = 1.0f / static_cast<float>(context_.accumulate);
  return FromKernel(
      context_.data_type == DataType::kBFloat16
          ? kernels::Accumulate(reinterpret_cast<const kernels::BFloat16*>(gradient), scale, count,
                                sum)
          : kernels::Accumulate(reinterpret_cast<const float*>(gradient), scale, count, sum),
      "Accumulate");
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
    spec.source_offset = ShardOffset(task.chunk) + g * granule_bytes();
    spec.destination = staged ? context_.store->StagingChunk(g)
                              : context_.store->GradientChunk(shape.first_granule + g);
    spec.bytes = granule_bytes();
    spec.cause = TransferCause::kWriteBack;
    spec.priority = Priority::kNormal;
    context_.session->Transfer(spec).Then(
        Later([this, chunk = task.chunk](const absl::Status& status) {
          if (status.ok()) GradientCopyDone(chunk);
        }));
  }
}

void Mover::GradientCopyDone(uint32_t chunk) {
  {
    std::lock_guard lock(mutex_);
    if (--copies_pending_[chunk] > 0) return;
    queue_.Leaving(chunk);
  }
  ReleaseExtent(chunk);
}

absl::Status Mover::AccumulateStaged(const Task& task) {
  {
    Lock lock(mutex_);
    changed_.wait(lock, [&] { return stop_ || !status_.ok() || copies_pending_[task.chunk] == 0; });
    if (!status_.ok()) return status_;
    if (copies_pending_[task.chunk] > 0) return absl::CancelledError("the engine ended");
  }
  const absl::Status status =
      KeepGradient(task, [this](uint32_t g) { return context_.store->Staging(g); });
  {
    std::lock_guard lock(mutex_);
    --adding_;
  }
  Changed();
  return status;
}

// Of fp32 sums: what Measure found before may have been another micro-batch's.
absl::Status Mover::MeasureSums() {
  for (const ChunkShape& shape : context_.layout->chunks) {
    if (!shape.trainable) continue;
    for (uint32_t g = shape.first_granule; g < shape.first_granule + shape.granules; ++g) {
      GEMINID_RETURN_IF_ERROR(Measure(g, context_.store->Gradient(g), /*is_float=*/true));
    }
  }
  return absl::OkStatus();
}

}  // namespace geminid::zero
