#include "client/zero/updater.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/adamw/adamw.h"

namespace geminid::zero {
namespace {

absl::Status FromKernel(kernels::Status status) {
  if (status == kernels::Status::kOk) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("the AdamW kernel refused its arguments: ", kernels::StatusName(status)));
}

template <typename T>
T* At(std::byte* base, uint64_t offset) {
  return reinterpret_cast<T*>(base) + offset;
}

absl::Status UpdateSplit(const kernels::AdamWOptions& options, const StateStore::View& from,
                         const StateStore::View& to, std::byte* gradient, bool fp32_gradient,
                         uint64_t offset, uint64_t count) {
  using kernels::BFloat16;
  const kernels::ConstSplitState old_state{At<BFloat16>(from.weight, offset),
                                           from.remainder + offset, from.arrays[0] + offset,
                                           from.arrays[1] + offset};
  const kernels::SplitState new_state{At<BFloat16>(to.weight, offset), to.remainder + offset,
                                      to.arrays[0] + offset, to.arrays[1] + offset};
  return FromKernel(
      fp32_gradient ? kernels::AdamWSplitOutOfPlace(options, old_state, At<float>(gradient, offset),
                                                    count, new_state)
                    : kernels::AdamWSplitOutOfPlace(
                          options, old_state, At<BFloat16>(gradient, offset), count, new_state));
}

absl::Status UpdateMaster(const kernels::AdamWOptions& options, const StateStore::View& from,
                          const StateStore::View& to, std::byte* gradient, uint64_t offset,
                          uint64_t count) {
  const kernels::ConstMasterState old_state{At<float>(from.weight, offset), from.arrays[0] + offset,
                                            from.arrays[1] + offset};
  const kernels::MasterState new_state{At<float>(to.weight, offset), to.arrays[0] + offset,
                                       to.arrays[1] + offset};
  return FromKernel(kernels::AdamWMasterOutOfPlace(options, old_state, At<float>(gradient, offset),
                                                   count, new_state));
}

}  // namespace

Updater::Updater(const Layout& layout, std::vector<bool> decay, int rank, const Options& options,
                 StateStore* store, std::function<void(absl::Status)> on_chunk_updated)
    : layout_(layout),
      options_(options),
      store_(store),
      on_chunk_updated_(std::move(on_chunk_updated)),
      current_(layout.chunks.size(), true) {
  MakeRuns(layout, decay, rank);
  thread_ = std::thread([this] { Loop(); });
}

Updater::~Updater() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

// Padding belongs to no tensor: it is updated too, since its zeros stay zeros and runs stay long.
void Updater::MakeRuns(const Layout& layout, const std::vector<bool>& decay, int rank) {
  const uint64_t granule_elements = layout.granule_elements;
  runs_.resize(layout.granules);
  for (const ChunkShape& chunk : layout.chunks) {
    const uint64_t shard_elements = chunk.granules * granule_elements;
    for (uint32_t g = 0; g < chunk.granules; ++g) {
      const uint64_t begin = static_cast<uint64_t>(rank) * shard_elements + g * granule_elements;
      const uint64_t end = begin + granule_elements;
      std::vector<Run>& runs = runs_[chunk.first_granule + g];
      uint64_t at = begin;
      for (size_t i = 0; i < chunk.tensors.size() && at < end; ++i) {
        // A tensor's run lasts until the next tensor begins.
        const uint64_t next = i + 1 < chunk.tensors.size()
                                  ? layout.tensors[chunk.tensors[i + 1]].offset
                                  : chunk.elements;
        if (next <= at) continue;
        const uint64_t stop = std::min(next, end);
        const bool decays = decay[chunk.tensors[i]];
        if (!runs.empty() && runs.back().decay == decays) {
          runs.back().elements += stop - at;
        } else {
          runs.push_back({at - begin, stop - at, decays});
        }
        at = stop;
      }
    }
  }
}

void Updater::Start(const UpdateStep& step, const std::vector<uint32_t>& order) {
  {
    std::lock_guard lock(mutex_);
    step_ = step;
    queue_ = order;
    next_ = 0;
    for (uint32_t chunk : order) current_[chunk] = false;
  }
  wake_.notify_all();
}

bool Updater::IsCurrent(uint32_t chunk) const {
  std::lock_guard lock(mutex_);
  return current_[chunk];
}

absl::Status Updater::WaitIdle() {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return next_ == queue_.size() || !status_.ok(); });
  return status_;
}

void Updater::Loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || (next_ < queue_.size() && status_.ok()); });
    if (next_ == queue_.size() || !status_.ok()) return;  // stopping, and nothing left to do
    const uint32_t chunk = queue_[next_];
    const UpdateStep step = step_;
    lock.unlock();
    absl::Status status = UpdateChunk(chunk, step);
    lock.lock();
    status_.Update(status);
    current_[chunk] = status.ok();
    ++next_;
    lock.unlock();
    wake_.notify_all();
    on_chunk_updated_(status);
    lock.lock();
  }
}

absl::Status Updater::UpdateChunk(uint32_t chunk, const UpdateStep& step) {
  const ChunkShape& shape = layout_.chunks[chunk];
  for (uint32_t g = 0; g < shape.granules; ++g) {
    absl::Status status = UpdateGranule(shape.first_granule + g, step);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Updater::UpdateGranule(uint32_t granule, const UpdateStep& step) {
  const StateStore::View from = store_->Current(granule);
  const StateStore::View to = store_->Spare(granule);
  const bool fp32_gradient = options_.accumulate > 1;
  for (const Run& run : runs_[granule]) {
    kernels::AdamWOptions options;
    options.learning_rate = step.learning_rate;
    options.beta1 = options_.adamw.beta1;
    options.beta2 = options_.adamw.beta2;
    options.epsilon = options_.adamw.epsilon;
    options.weight_decay = run.decay ? options_.adamw.weight_decay : 0.0;
    options.step = step.step;
    options.grad_scale = step.gradient_scale;
    absl::Status status =
        options_.data_type == DataType::kBFloat16
            ? UpdateSplit(options, from, to, store_->Gradient(granule), fp32_gradient, run.offset,
                          run.elements)
            : UpdateMaster(options, from, to, store_->Gradient(granule), run.offset, run.elements);
    if (!status.ok()) return status;
  }
  store_->Flip(granule, step.epoch);
  return absl::OkStatus();
}

}  // namespace geminid::zero
