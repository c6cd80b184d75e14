// Gradients on their way from the device to where the update reads them.
#include <cstring>

#include "client/zero/mover.h"
#include "kernels/numeric/accumulate/accumulate.h"
#include "kernels/numeric/norm/norm.h"
#include "kernels/runtime/common/absl_status.h"

namespace geminid::zero {

absl::Status Mover::RunReduce(const Task& task, Lock& lock) {
  lock.unlock();
  absl::Status status = ReduceScatter(task.chunk);
  if (status.ok() && context_.accumulate == 1) status = MeasureShard(task.chunk);
  if (status.ok()) {
    if (context_.store->on_device(task.chunk)) {
      status =
          KeepGradient(task, [&](uint32_t g) { return Shard(task.chunk) + g * granule_bytes(); });
      if (status.ok()) ReleaseExtent(task.chunk);
    } else {
      StartGradientCopies(task);
      if (context_.accumulate > 1) status = AccumulateStaged(task);
    }
  }
  lock.lock();
  return status;
}

// The mean over the ranks, formed in fp32 and rounded once.
absl::Status Mover::ReduceScatter(uint32_t chunk) {
  const int world_size = context_.communicator->WorldSize();
  if (world_size == 1) return absl::OkStatus();
  const collectives::DType type = collective_type();
  const uint64_t elements = context_.layout->chunks[chunk].elements;
  const uint64_t shard = elements / static_cast<uint64_t>(world_size);
  return context_.communicator->ReduceScatter({Extent(chunk), elements, type},
                                              {Shard(chunk), shard, type},
                                              collectives::ReduceOp::kSum, {1.0 / world_size});
}

absl::Status Mover::MeasureShard(uint32_t chunk) {
  const ChunkShape& shape = context_.layout->chunks[chunk];
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
  const ChunkShape& shape = context_.layout->chunks[task.chunk];
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
  const ChunkShape& shape = context_.layout->chunks[task.chunk];
  const bool staged = context_.accumulate > 1;
  {
    std::lock_guard lock(mutex_);
    chunks_[task.chunk].copies_pending = shape.granules;
    callbacks_pending_ += shape.granules;
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
    context_.session->Transfer(spec).Then([this, task, staged](const absl::Status& status) {
      GradientCopyDone(task.chunk, /*release=*/!staged, status);
    });
  }
}

void Mover::GradientCopyDone(uint32_t chunk, bool release, const absl::Status& status) {
  if (!status.ok()) Fail(status);
  bool last = false;
  {
    std::lock_guard lock(mutex_);
    last = --chunks_[chunk].copies_pending == 0;
  }
  if (last && release && status.ok()) ReleaseExtent(chunk);
  std::lock_guard lock(mutex_);
  --callbacks_pending_;
  changed_.notify_all();
}

absl::Status Mover::AccumulateStaged(const Task& task) {
  {
    Lock lock(mutex_);
    changed_.wait(lock, [&] { return !status_.ok() || chunks_[task.chunk].copies_pending == 0; });
    if (!status_.ok()) return status_;
    ++in_motion_;  // the addition below, which outlives the extent
  }
  ReleaseExtent(task.chunk);
  const absl::Status status =
      KeepGradient(task, [this](uint32_t g) { return context_.store->Staging(g); });
  {
    std::lock_guard lock(mutex_);
    --in_motion_;
  }
  changed_.notify_all();
  return status;
}

}  // namespace geminid::zero
