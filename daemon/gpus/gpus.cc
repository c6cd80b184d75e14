#include "daemon/gpus/gpus.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace geminid::gpus {

bool ScrubRule::MustScrubFor(const std::string& tenant) {
  if (!first_.has_value()) first_ = tenant;
  several_ = several_ || *first_ != tenant;
  return several_;
}

Gpus::Gpus(const Options& options, const std::vector<NodeDevice>& devices,
           const std::vector<core::DeviceDescription>& descriptions, os::EventLoop* loop)
    : had_other_daemons_(options.had_other_daemons) {
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].setting.kind != shm::DeviceKind::kCuda) {
      has_other_devices_ = true;
      continue;
    }
    const core::DeviceDescription& description = descriptions[i];
    if (!devices[i].gpu.has_value()) {
      missing_[description.index] =
          absl::StrCat(core::Describe(description), " has no GPU: ", devices[i].why_not);
      continue;
    }
    agents_[description.index] = std::make_unique<GpuAgent>(
        GpuAgent::Options{.program = options.program,
                          .gpu = devices[i].gpu->uuid,
                          .device = core::Describe(description),
                          .granularity_bytes = description.granularity_bytes,
                          .supervision = options.supervision},
        loop);
  }
}

void Gpus::Step() {
  for (const auto& [index, agent] : agents_) agent->Step();
}

std::optional<int64_t> Gpus::NextDeadline() const {
  std::optional<int64_t> next;
  for (const auto& [index, agent] : agents_) {
    const std::optional<int64_t> of_agent = agent->NextDeadline();
    if (of_agent.has_value()) next = std::min(next.value_or(*of_agent), *of_agent);
  }
  return next;
}

void Gpus::Retry() {
  for (const auto& [index, agent] : agents_) agent->Retry();
}

void Gpus::Close() {
  for (const auto& [index, agent] : agents_) agent->Close();
}

absl::Status Gpus::CheckFit(shm::DeviceIndex device) const {
  const auto found = agents_.find(device);
  return found == agents_.end() ? absl::OkStatus() : found->second->CheckFit();
}

std::set<shm::DeviceIndex> Gpus::Unfit() const {
  std::set<shm::DeviceIndex> unfit;
  for (const auto& [index, agent] : agents_) {
    if (!agent->CheckFit().ok()) unfit.insert(index);
  }
  return unfit;
}

absl::StatusOr<std::unique_ptr<GpuArena>> Gpus::NewArena(shm::DeviceIndex device) {
  if (absl::Status fit = CheckFit(device); !fit.ok()) return fit;
  const auto found = agents_.find(device);
  if (found != agents_.end()) return std::make_unique<GpuArena>(found->second.get());
  const auto missing = missing_.find(device);
  if (missing == missing_.end()) return absl::InternalError("a device that is no GPU");
  return absl::UnavailableError(
      absl::StrCat(missing->second, "; ask for another device, or start geminid again with one"));
}

absl::Status Gpus::Fill(shm::DeviceIndex device, const std::string& tenant, uint64_t bytes,
                        const std::atomic<bool>& cancelled, GpuArena* arena) {
  bool scrub = false;
  {
    const std::lock_guard lock(mutex_);
    scrub = rules_.try_emplace(device, had_other_daemons_).first->second.MustScrubFor(tenant);
  }
  return arena->Fill(bytes, scrub, cancelled);
}

std::map<shm::DeviceIndex, AgentReading> Gpus::Read() const {
  std::map<shm::DeviceIndex, AgentReading> readings;
  for (const auto& [index, agent] : agents_) readings[index] = agent->Read();
  return readings;
}

}  // namespace geminid::gpus
