#include "tools/sim/updater.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/sim/noise.h"

namespace geminid::sim {
namespace {

// Chunks whose state is in memory on its way from or to the disk: one read, one updated, one
// written.
constexpr size_t kStagedChunks = 3;

}  // namespace

using planner::ChunkIndex;

Updater::Updater(Process* process, UpdateProgress* progress, std::function<void()> updated)
    : process_(process), progress_(progress), updated_(std::move(updated)) {
  const Workload& workload = process->workload();
  std::vector<bool> listed(workload.trace.chunks.size(), false);
  const auto list = [&](ChunkIndex chunk) {
    if (listed[chunk] || workload.updates[chunk].parameters == 0) return;
    listed[chunk] = true;
    first_use_order_.push_back(chunk);
  };
  for (const planner::MomentTrace& moment : workload.trace.moments) {
    for (const planner::Use& use : moment.uses) list(use.chunk);
  }
  for (ChunkIndex chunk = 0; chunk < listed.size(); ++chunk) list(chunk);
}

const ChunkUpdate& Updater::Update(size_t position) const {
  return process_->workload().updates[order_[position]];
}

void Updater::Start(uint64_t step) {
  progress_->step = step;
  progress_->current.assign(process_->workload().trace.chunks.size(), true);
  for (const ChunkIndex chunk : first_use_order_) progress_->current[chunk] = false;
  Resume();
}

void Updater::Resume() {
  order_.clear();
  for (const ChunkIndex chunk : first_use_order_) {
    if (!IsCurrent(chunk)) order_.push_back(chunk);
  }
  read_ = updated_to_ = written_ = 0;
  ReadAhead();
  RunNext();
}

void Updater::Stage(bool in, size_t position, std::function<void()> done) {
  const ChunkUpdate& update = Update(position);
  const Machine& machine = process_->machine();
  const RankResources& shared = process_->shared();
  const bool streamed = update.streamed_bytes > 0;
  const uint64_t gradient = in ? update.streamed_gradient_bytes : 0;
  const uint64_t bytes = streamed ? update.streamed_bytes + gradient
                         : in     ? update.disk_read_bytes
                                  : update.disk_write_bytes;
  if (bytes == 0) return done();
  const double speed =
      streamed ? (in ? machine.up_bytes_per_second : machine.down_bytes_per_second)
               : (in ? machine.disk_read_bytes_per_second : machine.disk_write_bytes_per_second);
  std::vector<ResourceDemand> demands;
  if (streamed) {
    AddDemands(in ? shared.up : shared.down, speed, &demands);
    AddDemands(shared.host, speed, &demands);
    process_->observer().AddBytes(process_->rank(), in ? Track::kUp : Track::kDown, bytes);
  } else {
    AddDemands(in ? shared.disk_read : shared.disk_write, speed, &demands);
    process_->observer().AddDiskBytes(process_->rank(), in ? bytes : 0, in ? 0 : bytes);
  }
  process_->Work(streamed ? (in ? Track::kUp : Track::kDown) : Track::kDisk,
                 absl::StrCat(in ? "fetch" : "return", " state of chunk ", order_[position]),
                 speed > 0 ? static_cast<double>(bytes) / speed : 0, std::move(demands),
                 std::move(done));
}

void Updater::ReadAhead() {
  if (reading_ || read_ == order_.size() || read_ >= written_ + kStagedChunks) return;
  reading_ = true;
  Stage(/*in=*/true, read_, [this] {
    reading_ = false;
    ++read_;
    ReadAhead();
    RunNext();
  });
}

void Updater::RunNext() {
  if (busy_ || updated_to_ >= read_) return;
  busy_ = true;
  const Machine& machine = process_->machine();
  const ChunkUpdate& update = Update(updated_to_);
  const bool on_device = update.on_device || update.streamed_bytes > 0;
  const double speed = on_device ? machine.device_update_parameters_per_second
                                 : machine.update_parameters_per_second;
  const uint64_t n = progress_->step * order_.size() + updated_to_;
  const double seconds =
      (speed > 0 ? static_cast<double>(update.parameters) / speed : 0) *
      NoiseFactor(process_->seed(), NoiseSource::kUpdate, static_cast<uint64_t>(process_->rank()),
                  n, machine.update_noise);
  std::vector<ResourceDemand> demands;
  if (!on_device) {
    AddDemands(process_->shared().host, speed * machine.update_host_bytes_per_parameter, &demands);
  }
  const auto done = [this] {
    busy_ = false;
    Write(updated_to_++);
    RunNext();
    updated_();
  };
  process_->Work(Track::kOptimizer, absl::StrCat("update chunk ", order_[updated_to_]), seconds,
                 std::move(demands), done);
}

void Updater::Write(size_t position) {
  // Streamed weights are current once they have been copied down, and those of state on disk once
  // that has been written: the engine names no version that a killed process would not find.
  const ChunkUpdate& update = Update(position);
  if (update.streamed_bytes == 0 && update.disk_write_bytes == 0) {
    progress_->current[order_[position]] = true;
  }
  Stage(/*in=*/false, position, [this, position] { Written(position); });
}

void Updater::Written(size_t position) {
  progress_->current[order_[position]] = true;
  ++written_;
  ReadAhead();
  updated_();
}

}  // namespace geminid::sim
