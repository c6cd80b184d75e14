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

void Updater::ReadAhead() {
  if (reading_ || read_ == order_.size() || read_ >= written_ + kStagedChunks) return;
  const ChunkUpdate& update = Update(read_);
  const auto done = [this] {
    reading_ = false;
    ++read_;
    ReadAhead();
    RunNext();
  };
  reading_ = true;
  if (update.disk_read_bytes == 0) return done();
  const double speed = process_->machine().disk_read_bytes_per_second;
  const double bytes = static_cast<double>(update.disk_read_bytes);
  std::vector<Demand> demands;
  AddDemands(process_->shared().disk_read, speed, &demands);
  process_->observer().AddDiskBytes(process_->rank(), update.disk_read_bytes, 0);
  process_->Work(Track::kDisk, absl::StrCat("read chunk ", order_[read_]),
                 speed > 0 ? bytes / speed : 0, std::move(demands), done);
}

void Updater::RunNext() {
  if (busy_ || updated_to_ >= read_) return;
  busy_ = true;
  const Machine& machine = process_->machine();
  const ChunkUpdate& update = Update(updated_to_);
  const double speed = update.on_device ? machine.device_update_parameters_per_second
                                        : machine.update_parameters_per_second;
  const uint64_t n = progress_->step * order_.size() + updated_to_;
  const double seconds =
      (speed > 0 ? static_cast<double>(update.parameters) / speed : 0) *
      NoiseFactor(process_->seed(), NoiseSource::kUpdate, static_cast<uint64_t>(process_->rank()),
                  n, machine.update_noise);
  std::vector<Demand> demands;
  if (!update.on_device) {
    demands = process_->shared().processor;
    AddDemands(process_->shared().host, speed * machine.update_host_bytes_per_parameter, &demands);
  }
  process_->Work(Track::kOptimizer, absl::StrCat("update chunk ", order_[updated_to_]), seconds,
                 std::move(demands), [this] {
                   busy_ = false;
                   progress_->current[order_[updated_to_]] = true;
                   Write(updated_to_++);
                   RunNext();
                   updated_();
                 });
}

void Updater::Write(size_t position) {
  const ChunkUpdate& update = Update(position);
  const auto done = [this] {
    ++written_;
    ReadAhead();
    updated_();
  };
  if (update.disk_write_bytes == 0) return done();
  const double speed = process_->machine().disk_write_bytes_per_second;
  const double bytes = static_cast<double>(update.disk_write_bytes);
  std::vector<Demand> demands;
  AddDemands(process_->shared().disk_write, speed, &demands);
  process_->observer().AddDiskBytes(process_->rank(), 0, update.disk_write_bytes);
  process_->Work(Track::kDisk, absl::StrCat("write chunk ", order_[position]),
                 speed > 0 ? bytes / speed : 0, std::move(demands), done);
}

}  // namespace geminid::sim
