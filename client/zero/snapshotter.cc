#include "client/zero/snapshotter.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/status_macros.h"
#include "client/zero/updater.h"
#include "kernels/numeric/split_master/split_master.h"

namespace geminid::zero {
namespace {

const kernels::BFloat16* AsBFloat16(const std::byte* bytes) {
  return reinterpret_cast<const kernels::BFloat16*>(bytes);
}

const float* ArrayOf(const StateStore::View& view, StateKind kind) {
  return kind == StateKind::kExpAvg ? view.arrays[0] : view.arrays[1];
}

void JoinMaster(const StateStore::View& view, uint64_t at, std::span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const int16_t remainder = view.remainder == nullptr ? int16_t{0} : view.remainder[at + i];
    const uint32_t bits = kernels::JoinMasterBits({AsBFloat16(view.weight)[at + i], remainder});
    std::memcpy(&values[i], &bits, sizeof(bits));
  }
}

void SplitMaster(const StateStore::View& view, uint64_t at, std::span<const float> values) {
  auto* weight = reinterpret_cast<kernels::BFloat16*>(view.weight);
  for (size_t i = 0; i < values.size(); ++i) {
    const kernels::SplitFloat split = kernels::SplitMasterBits(std::bit_cast<uint32_t>(values[i]));
    weight[at + i] = split.weight;
    if (view.remainder != nullptr) view.remainder[at + i] = split.remainder;
  }
}

}  // namespace

Snapshotter::Snapshotter(const Layout& layout, const std::vector<uint64_t>& elements, int rank,
                         const StateStore& store, DataType data_type)
    : layout_(layout),
      store_(store),
      data_type_(data_type),
      parts_(layout.granules),
      turns_(layout.granules, Turn::kDone) {
  for (uint32_t tensor = 0; tensor < elements.size(); ++tensor) {
    for (const ShardPart& part : PartsOfTensor(layout, tensor, elements[tensor], rank)) {
      parts_[part.granule].push_back(part);
    }
  }
}

Snapshotter::~Snapshotter() { Stop(); }

void Snapshotter::Stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    if (running_) status_.Update(absl::CancelledError("the engine ended before the snapshot did"));
  }
  if (thread_.joinable()) thread_.join();
}

absl::Status Snapshotter::Start(uint64_t epoch, std::vector<uint32_t> order, Updater* updater,
                                std::shared_ptr<SnapshotSink> sink) {
  {
    std::lock_guard lock(mutex_);
    if (stop_) return absl::CancelledError("the engine is ending");
    if (running_) {
      return absl::FailedPreconditionError(
          "a snapshot is still being taken; wait for it before starting another");
    }
    epoch_ = epoch;
    sink_ = std::move(sink);
    status_ = absl::OkStatus();
    std::fill(turns_.begin(), turns_.end(), Turn::kPending);
    running_ = true;
  }
  if (thread_.joinable()) thread_.join();
  thread_ = std::thread([this, updater, order = std::move(order)] { Run(order, updater); });
  return absl::OkStatus();
}

void Snapshotter::Run(std::vector<uint32_t> order, Updater* updater) {
  std::unique_lock lock(mutex_);
  for (uint32_t chunk : order) {
    lock.unlock();
    const absl::Status updated = updater->WaitCurrent(chunk);
    lock.lock();
    status_.Update(updated);
    if (stop_) break;
    const ChunkShape& shape = layout_.chunks[chunk];
    for (uint32_t g = 0; g < shape.granules; ++g) HandOut(shape.first_granule + g, lock);
  }
  running_ = false;
  sink_.reset();
  lock.unlock();
  changed_.notify_all();
}

// After an error nothing is handed out any more, but everybody is let go.
void Snapshotter::HandOut(uint32_t granule, std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return turns_[granule] != Turn::kInHand; });
  if (turns_[granule] == Turn::kDone) return;
  if (status_.ok()) {
    turns_[granule] = Turn::kInHand;
    lock.unlock();
    const absl::Status given = Give(granule);
    lock.lock();
    status_.Update(given);
  }
  turns_[granule] = Turn::kDone;
  changed_.notify_all();
}

absl::Status Snapshotter::Give(uint32_t granule) {
  std::vector<float> values;
  for (const ShardPart& part : parts_[granule]) {
    values.resize(part.elements);
    for (StateKind kind : kStateKinds) {
      if (!Has(granule, kind)) continue;
      Read(part, kind, values);
      GEMINID_RETURN_IF_ERROR(
          sink_->Write(ParameterId{part.tensor}, kind, part.tensor_offset, values));
    }
  }
  return absl::OkStatus();
}

absl::Status Snapshotter::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !running_; });
  return status_;
}

void Snapshotter::BeforeUpdate(uint32_t granule, uint64_t epoch) {
  std::unique_lock lock(mutex_);
  if (!running_ || epoch <= epoch_) return;
  HandOut(granule, lock);
}

bool Snapshotter::Has(uint32_t granule, StateKind kind) const {
  return kind == StateKind::kMaster || ArrayOf(store_.Current(granule), kind) != nullptr;
}

void Snapshotter::Read(const ShardPart& part, StateKind kind, std::span<float> values) const {
  const StateStore::View view = store_.Current(part.granule);
  if (kind == StateKind::kMaster && data_type_ == DataType::kBFloat16) {
    return JoinMaster(view, part.granule_offset, values);
  }
  const float* from = kind == StateKind::kMaster ? reinterpret_cast<const float*>(view.weight)
                                                 : ArrayOf(view, kind);
  if (from == nullptr) {
    std::fill(values.begin(), values.end(), 0.0F);
  } else {
    std::memcpy(values.data(), from + part.granule_offset, values.size_bytes());
  }
}

void Snapshotter::Write(const ShardPart& part, StateKind kind, std::span<const float> values) {
  const StateStore::View view = store_.Current(part.granule);
  if (kind == StateKind::kMaster && data_type_ == DataType::kBFloat16) {
    return SplitMaster(view, part.granule_offset, values);
  }
  float* to = kind == StateKind::kMaster ? reinterpret_cast<float*>(view.weight)
                                         : const_cast<float*>(ArrayOf(view, kind));
  if (to != nullptr) std::memcpy(to + part.granule_offset, values.data(), values.size_bytes());
}

}  // namespace geminid::zero
