#include "tools/geminictl/doctor/checks.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/units.h"
#include "proto/shm/types.h"
#include "tools/geminictl/output/format.h"

namespace geminid::ctl {
namespace {

using base::FormatBytes;

// A session needs about eight of the daemon's descriptors and one per pool. kOpenFilesWanted is
// enough for a node full of ranks. With fewer than kOpenFilesNeeded only the daemon itself fits.
constexpr uint64_t kOpenFilesWanted = 4096;
constexpr uint64_t kOpenFilesNeeded = 64;
using base::kGiB;
constexpr uint64_t kMemoryWantedBytes = 2 * kGiB;
constexpr uint64_t kTemporaryWantedBytes = kGiB;
// One byte more than Docker's default for containers, which NCCL and data loaders soon exhaust.
constexpr uint64_t kDevShmWantedBytes = (uint64_t{64} << 20) + 1;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

Check Probe(const char* id, const absl::Status& status, Verdict otherwise, const char* good,
            const char* fix) {
  if (status.ok()) return {id, Verdict::kPass, good, ""};
  return {id, otherwise, Message(status), fix};
}

Check JudgePeerPidfd(const MachineFindings& found) {
  if (found.peer_pidfd.ok()) {
    return {"peer_pidfd", Verdict::kPass,
            "the kernel reports which process connects, and when it ends", ""};
  }
  if (found.pidfd_open.ok()) {
    return {"peer_pidfd", Verdict::kWarn,
            Message(found.peer_pidfd) + "; clients are looked up by process number instead",
            "use Linux 6.5 or newer; until then run the daemon in the clients' PID namespace"};
  }
  return {"peer_pidfd", Verdict::kFail, Message(found.pidfd_open),
          "use Linux 6.5 or newer, or allow pidfd_open in the seccomp profile of the container"};
}

Check JudgeMemoryLock(const MachineFindings& found) {
  const uint64_t limit = found.machine.memlock_limit_bytes;
  if (limit == kNoLimit) return {"memlock_limit", Verdict::kPass, "no limit", ""};
  if (found.may_lock_memory) {
    return {"memlock_limit", Verdict::kPass,
            absl::StrCat(FormatBytes(limit), ", but CAP_IPC_LOCK lifts it"), ""};
  }
  if (found.nvidia_driver.empty()) {
    return {"memlock_limit", Verdict::kPass,
            absl::StrCat(FormatBytes(limit), "; without a GPU nothing is pinned"), ""};
  }
  return {"memlock_limit", Verdict::kWarn,
          absl::StrCat(FormatBytes(limit), ": pools larger than that cannot be pinned for the GPU"),
          "set LimitMEMLOCK=infinity in the service, or 'ulimit -l unlimited' before training"};
}

Check JudgeOpenFiles(uint64_t limit) {
  const std::string found =
      limit == kNoLimit ? "no limit" : absl::StrCat("hard limit ", limit, " descriptors");
  const std::string fix =
      absl::StrCat("raise the hard limit to ", kOpenFilesWanted,
                   ": LimitNOFILE= in the service, or /etc/security/limits.conf");
  if (limit >= kOpenFilesWanted) return {"open_files_limit", Verdict::kPass, found, ""};
  return {"open_files_limit", limit >= kOpenFilesNeeded ? Verdict::kWarn : Verdict::kFail, found,
          fix};
}

Check JudgeMemory(const MachineFindings& found) {
  if (found.machine.ram_bytes == 0) {
    return {"memory", Verdict::kFail, "/proc/meminfo cannot be read", "mount /proc"};
  }
  const std::string size = absl::StrCat(FormatBytes(found.machine.ram_bytes), " of RAM, ",
                                        FormatBytes(found.available_bytes), " available");
  if (found.available_bytes >= kMemoryWantedBytes) {
    return {"memory", Verdict::kPass, size, ""};
  }
  return {"memory", Verdict::kWarn, size,
          "end programs that hold memory; pools take their memory at once and do not wait"};
}

Check JudgeCgroup(const MachineFindings& found) {
  if (found.cgroup_version == 0) {
    return {"cgroup_memory_limit", Verdict::kPass, "no memory controller over this process", ""};
  }
  const std::string version = absl::StrCat("cgroup v", found.cgroup_version, ": ");
  if (!found.machine.cgroup_limit_bytes.has_value()) {
    return {"cgroup_memory_limit", Verdict::kPass, version + "no limit below the RAM", ""};
  }
  const uint64_t limit = *found.machine.cgroup_limit_bytes;
  const std::string text =
      absl::StrCat(version, FormatBytes(limit), "; pools count against who touches them first");
  if (limit >= kMemoryWantedBytes) return {"cgroup_memory_limit", Verdict::kPass, text, ""};
  return {"cgroup_memory_limit", Verdict::kWarn, text,
          "give the container or service more memory; a process over its limit is killed"};
}

Check JudgeNuma(const MachineFindings& found) {
  const std::vector<os::NodeMemory>& nodes = found.machine.nodes;
  return {"numa_nodes", Verdict::kPass,
          nodes.size() < 2 ? "one node: nothing to bind to"
                           : absl::StrCat(nodes.size(), " nodes, with ", os::AvailableText(nodes),
                                          " available; pools lie on the rank's while it has room"),
          ""};
}

Check JudgeHugePages(const os::HugePages& pages) {
  const std::string shmem = pages.shmem_enabled.empty() ? "never" : pages.shmem_enabled;
  const std::string found =
      absl::StrCat(pages.free_pages, " reserved pages of ", FormatBytes(pages.page_bytes), " free",
                   pages.counted_by_cgroups ? ", which count against cgroups' memory limits" : "",
                   "; shmem_enabled is ", shmem);
  if (pages.free_pages > 0 || pages.shmem_on_advice) {
    return {"huge_pages", Verdict::kPass, found, ""};
  }
  return {"huge_pages", Verdict::kWarn,
          found + ": pools use small pages, which take longer to make",
          "as root: echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled"};
}

Check JudgeDevShm(const std::optional<Space>& space) {
  if (!space.has_value()) {
    return {"dev_shm", Verdict::kWarn,
            "/dev/shm does not exist; geminid does not use it, NCCL and data loaders do",
            "mount a tmpfs on /dev/shm"};
  }
  const std::string found =
      absl::StrCat(FormatBytes(space->total_bytes), ", ", FormatBytes(space->free_bytes), " free");
  if (space->total_bytes >= kDevShmWantedBytes) return {"dev_shm", Verdict::kPass, found, ""};
  return {"dev_shm", Verdict::kWarn,
          found + "; enough for geminid, which does not use it, but not for NCCL and data loaders",
          "start the container with --shm-size=8g, or remount /dev/shm with a larger size="};
}

Check JudgeCpu(const CpuFeatures& cpu) {
  if (!cpu.is_x86) {
    return {"cpu_features", Verdict::kPass,
            "not an x86 processor; its own vector instructions are used", ""};
  }
  std::vector<std::string> has;
  std::vector<std::string> lacks;
  const auto sort = [&](bool present, const char* name) {
    (present ? has : lacks).push_back(name);
  };
  sort(cpu.avx2, "AVX2");
  sort(cpu.avx512, "AVX-512");
  sort(cpu.avx512_bf16, "AVX-512 BF16");
  sort(cpu.amx_bf16, "AMX BF16");
  const std::string found =
      absl::StrCat(has.empty() ? "none of the wanted" : absl::StrJoin(has, ", "),
                   lacks.empty() ? "" : absl::StrCat("; lacks ", absl::StrJoin(lacks, ", ")));
  if (cpu.avx2) return {"cpu_features", Verdict::kPass, found, ""};
  return {"cpu_features", Verdict::kWarn, found,
          "train on a processor with AVX2, or let the hypervisor pass it through: without AVX2 the "
          "optimizer on the host is several times slower"};
}

Check JudgeDriver(const std::string& version) {
  if (version.empty()) {
    return {"nvidia_driver", Verdict::kPass, "none: ranks use the host device", ""};
  }
  return {"nvidia_driver", Verdict::kPass, absl::StrCat("NVIDIA driver ", version), ""};
}

Check JudgeTemporary(const MachineFindings& found) {
  const std::string& folder = found.temporary_folder;
  if (!found.temporary_space.has_value()) {
    return {"temporary_space", Verdict::kFail, folder + " cannot be written",
            "set TMPDIR to a folder that can be written: private daemons put their sockets there"};
  }
  const std::string text =
      absl::StrCat(folder, " has ", FormatBytes(found.temporary_space->free_bytes), " free");
  if (found.temporary_space->free_bytes >= kTemporaryWantedBytes) {
    return {"temporary_space", Verdict::kPass, text, ""};
  }
  return {"temporary_space", Verdict::kWarn, text, "remove files, or set TMPDIR to a larger disk"};
}

Check JudgeSocket(const SocketFindings& socket) {
  constexpr uint32_t kOthersMayWrite = 0002;
  const std::string where =
      socket.exists ? absl::StrFormat("%s, mode %04o", socket.path, socket.mode) : socket.path;
  if (socket.reached.ok()) {
    if ((socket.mode & kOthersMayWrite) == 0) return {"socket", Verdict::kPass, where, ""};
    return {"socket", Verdict::kWarn, where + ": everybody on this machine may hold memory",
            "set socket_mode to 0660 and give the trainers the socket's group"};
  }
  if (absl::IsUnavailable(socket.reached) && (!socket.exists || socket.is_socket)) {
    return {"socket", Verdict::kWarn,
            absl::StrCat(socket.exists ? "nobody listens on " : "there is no ", socket.path,
                         "; programs that name no socket start a daemon of their own"),
            absl::StrCat("to share one daemon, start it: geminid --socket ", socket.path)};
  }
  if (absl::IsPermissionDenied(socket.reached)) {
    return {"socket", Verdict::kFail, where + ": you may not connect",
            "join the socket's group ('ls -l' shows it), or change the daemon's socket_mode"};
  }
  return {"socket", Verdict::kFail, Message(socket.reached), "give the daemon's --socket"};
}

Check JudgeAttach(const SocketFindings& socket) {
  if (!socket.reached.ok()) return {"attach_socket", Verdict::kSkip, "no daemon", ""};
  if (socket.attach_reached.ok()) {
    return {"attach_socket", Verdict::kPass, socket.path + ".attach", ""};
  }
  return {"attach_socket", Verdict::kFail, Message(socket.attach_reached),
          "clients need both sockets, PATH and PATH.attach: mount their folder into the container, "
          "not one file"};
}

Check JudgeVersion(const SocketFindings& socket, const std::string& own_version) {
  if (!socket.reached.ok()) {
    return {"daemon_version", Verdict::kSkip, absl::StrCat("no daemon; this is ", own_version), ""};
  }
  if (!socket.daemon.ok()) {
    return {"daemon_version", Verdict::kFail, Message(socket.daemon.status()),
            "look at the daemon's log, and restart it when the ranks allow"};
  }
  const std::string found = absl::StrCat("geminid ", socket.daemon->version(), ", ",
                                         socket.daemon->phase(), "; this is ", own_version);
  if (socket.daemon->version() == own_version) {
    return {"daemon_version", Verdict::kPass, found, ""};
  }
  return {"daemon_version", Verdict::kWarn, found, "install the same release of both"};
}

Check JudgeLedger(const SocketFindings& socket) {
  if (!socket.daemon.ok()) return {"daemon_ledger", Verdict::kSkip, "no daemon", ""};
  if (socket.daemon->ledger().adds_up()) {
    return {"daemon_ledger", Verdict::kPass, "every byte of every tier has an owner", ""};
  }
  return {"daemon_ledger", Verdict::kFail, "the ledger does not add up: a defect of the daemon",
          "keep the daemon's log and restart it when the ranks allow"};
}

bool IsGpu(const v1::DeviceDescription& device) {
  return static_cast<shm::DeviceKind>(device.kind()) == shm::DeviceKind::kCuda;
}

// Judges whether the NUMA node of a host device can hold the device, and whether a GPU has memory
// to give.
Check JudgeDevices(const SocketFindings& socket, const MachineFindings& machine) {
  if (!socket.daemon.ok()) return {"daemon_devices", Verdict::kSkip, "no daemon", ""};
  std::vector<std::string> devices;
  std::vector<std::string> problems;
  for (const v1::DeviceDescription& device : socket.daemon->devices()) {
    devices.push_back(absl::StrCat("device ", device.index(), ": ",
                                   shm::Name(static_cast<shm::DeviceKind>(device.kind())), ", ",
                                   FormatBytes(device.capacity_bytes())));
    if (!device.has_numa_node()) continue;
    absl::StrAppend(&devices.back(), " on NUMA node ", device.numa_node());
    for (const os::NodeMemory& memory : machine.machine.nodes) {
      if (IsGpu(device) || memory.node != device.numa_node() ||
          memory.total_bytes >= device.capacity_bytes()) {
        continue;
      }
      problems.push_back(absl::StrCat(
          "device ", device.index(), " may take ", FormatBytes(device.capacity_bytes()),
          " of NUMA node ", memory.node, ", which has ", FormatBytes(memory.total_bytes)));
    }
  }
  if (!problems.empty()) {
    return {"daemon_devices", Verdict::kWarn, absl::StrJoin(problems, "; "),
            "give the device less memory or another node, in device of the daemon's configuration"};
  }
  for (const v1::GpuInfo& gpu : socket.daemon->gpus()) {
    if (gpu.health() == "unhealthy") {
      problems.push_back(absl::StrCat("device ", gpu.device(), " takes no new sessions: ",
                                      Printable(absl::StrJoin(gpu.health_reasons(), "; "))));
      continue;
    }
    if (gpu.agent() == "serving") continue;
    problems.push_back(absl::StrCat("device ", gpu.device(), " has no new memory: its agent is ",
                                    Printable(gpu.agent()), ", ", Printable(gpu.why())));
  }
  if (!problems.empty()) {
    return {"daemon_devices", Verdict::kWarn, absl::StrJoin(problems, "; "),
            "see the daemon's log, nvidia-smi and dmesg; SIGHUP to geminid starts an agent again "
            "that was given up, and lets a GPU be used again whose Xids were looked into"};
  }
  return {"daemon_devices", Verdict::kPass, absl::StrJoin(devices, "; "), ""};
}

bool IsRam(const v1::TierLedger& tier, const v1::Status& daemon) {
  if (tier.tier() == v1::TIER_DISK) return false;
  return !tier.has_device() || static_cast<int>(tier.device()) >= daemon.devices_size() ||
         !IsGpu(daemon.devices(static_cast<int>(tier.device())));
}

Check JudgeCapacity(const SocketFindings& socket, const MachineFindings& machine) {
  if (!socket.daemon.ok()) return {"daemon_capacity", Verdict::kSkip, "no daemon", ""};
  uint64_t capacity_bytes = 0;
  for (const v1::TierLedger& tier : socket.daemon->ledger().tiers()) {
    if (IsRam(tier, *socket.daemon)) capacity_bytes += tier.capacity_bytes();
  }
  const uint64_t memory_bytes =
      machine.machine.cgroup_limit_bytes.value_or(machine.machine.ram_bytes);
  const std::string found =
      absl::StrCat("it may hand out ", FormatBytes(capacity_bytes), " for host and host devices; ",
                   FormatBytes(memory_bytes), " of memory");
  if (capacity_bytes <= memory_bytes) return {"daemon_capacity", Verdict::kPass, found, ""};
  return {
      "daemon_capacity", Verdict::kWarn, found,
      "set host_memory and device_memory (or device) of the daemon so that all together fit: on "
      "host devices all are RAM"};
}

// The daemon reports its descriptor store only when it has lost it.
Check JudgeSurvival(const SocketFindings& socket) {
  const char* const id = "daemon_survival";
  if (!socket.daemon.ok()) return {id, Verdict::kSkip, "no daemon", ""};
  for (const v1::MachineFact& fact : socket.daemon->facts()) {
    if (fact.name() != "descriptor store") continue;
    return {
        id, Verdict::kWarn, absl::StrCat(fact.value(), ": ", fact.why_not()),
        "lift the limit that the log names, and send the daemon SIGHUP; do not restart it before"};
  }
  return {id, Verdict::kPass, "no descriptor store is lost", ""};
}

}  // namespace

const char* Name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return "pass";
    case Verdict::kWarn:
      return "warn";
    case Verdict::kFail:
      return "fail";
    case Verdict::kSkip:
      return "skip";
  }
  return "unknown";
}

std::vector<Check> JudgeMachine(const MachineFindings& found) {
  return {
      Probe("memfd_seals", found.sealed_memfd, Verdict::kFail, "memory that no client can truncate",
            "use a Linux kernel with memfd_create and sealing, and allow them in the container's "
            "seccomp profile"),
      Probe("memfd_noexec_seal", found.noexec_seal, Verdict::kWarn, "memory that is never code",
            "use Linux 6.3 or newer; without it shared memory could be mapped executable"),
      Probe("populate_write", found.populate_write, Verdict::kFail,
            absl::StrCat("Linux ", found.kernel_release, " backs memory before it is used").c_str(),
            "use Linux 5.14 or newer: memory is backed by MADV_POPULATE_WRITE"),
      JudgePeerPidfd(found),
      Probe("io_uring", found.io_uring, Verdict::kWarn, "permitted",
            "set kernel.io_uring_disabled to 0 and allow io_uring_setup in the container's seccomp "
            "profile; without it the disk tier uses ordinary calls"),
      JudgeMemoryLock(found),
      JudgeOpenFiles(found.open_files_limit),
      JudgeMemory(found),
      JudgeCgroup(found),
      JudgeNuma(found),
      JudgeHugePages(found.machine.huge_pages),
      JudgeDevShm(found.dev_shm),
      JudgeCpu(found.cpu),
      JudgeDriver(found.nvidia_driver),
      JudgeTemporary(found),
  };
}

std::vector<Check> JudgeDaemon(const SocketFindings& socket, const MachineFindings& machine,
                               const std::string& own_version) {
  return {JudgeSocket(socket),  JudgeAttach(socket),           JudgeVersion(socket, own_version),
          JudgeLedger(socket),  JudgeDevices(socket, machine), JudgeCapacity(socket, machine),
          JudgeSurvival(socket)};
}

}  // namespace geminid::ctl
