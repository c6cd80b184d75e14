// The GPUs among the devices of the node, each with its agent.
#ifndef GEMINID_DAEMON_GPUS_GPUS_H_
#define GEMINID_DAEMON_GPUS_GPUS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/core/accounts/account.h"
#include "daemon/gpus/assign.h"
#include "daemon/gpus/gpu_agent.h"
#include "daemon/gpus/gpu_arena.h"
#include "daemon/os/event_loop.h"

namespace geminid::gpus {

// Whether zeros must be written into memory before a tenant gets it. The driver is trusted to clear
// memory that processes gave back. But once two tenants may have used this GPU's memory, it is
// cleared a second time.
class ScrubRule {
 public:
  // Nobody knows which tenants used the memory under earlier daemons.
  explicit ScrubRule(bool had_other_daemons) : several_(had_other_daemons) {}
  bool MustScrubFor(const std::string& tenant);

 private:
  std::optional<std::string> first_;
  bool several_;
};

class Gpus {
 public:
  struct Options {
    std::string program;  // geminid-agent
    agent::SupervisionOptions supervision{};
    bool had_other_daemons = false;  // the node, before this one
  };
  // One agent for each device that has a GPU; `descriptions` are those of `devices`, by index.
  Gpus(const Options& options, const std::vector<NodeDevice>& devices,
       const std::vector<core::DeviceDescription>& descriptions, os::EventLoop* loop);

  // --- the loop's thread, as of GpuAgent ---------------------------------------------------------
  void Step();
  std::optional<int64_t> NextDeadline() const;
  void Retry();
  void Close();

  // --- any thread --------------------------------------------------------------------------------
  // Whether new sessions may get the device: GpuAgent::CheckFit; OK for all but GPUs.
  absl::Status CheckFit(shm::DeviceIndex device) const;
  // The devices that new sessions may not get.
  std::set<shm::DeviceIndex> Unfit() const;
  // An empty arena. UNAVAILABLE, naming the device: it has no GPU. Also errors of CheckFit.
  absl::StatusOr<std::unique_ptr<GpuArena>> NewArena(shm::DeviceIndex device);
  // Fills the arena for that tenant.
  absl::Status Fill(shm::DeviceIndex device, const std::string& tenant, uint64_t bytes,
                    const std::atomic<bool>& cancelled, GpuArena* arena);

  // By index; without devices whose GPU is missing.
  std::map<shm::DeviceIndex, AgentReading> Read() const;
  // Devices whose GPU is missing, and what is missing.
  const std::map<shm::DeviceIndex, std::string>& missing() const { return missing_; }
  // Whether the node has devices that are no GPUs.
  bool has_other_devices() const { return has_other_devices_; }

 private:
  const bool had_other_daemons_;
  std::map<shm::DeviceIndex, std::unique_ptr<GpuAgent>> agents_;
  std::map<shm::DeviceIndex, std::string> missing_;
  bool has_other_devices_ = false;
  std::mutex mutex_;
  std::map<shm::DeviceIndex, ScrubRule> rules_;  // guarded by mutex_
};

}  // namespace geminid::gpus

#endif  // GEMINID_DAEMON_GPUS_GPUS_H_
