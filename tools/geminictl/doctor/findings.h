// The facts that geminictl doctor finds. checks.h judges them.
#ifndef GEMINID_TOOLS_GEMINICTL_DOCTOR_FINDINGS_H_
#define GEMINID_TOOLS_GEMINICTL_DOCTOR_FINDINGS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/os/machine.h"
#include "geminid/v1/admin.pb.h"

namespace geminid::ctl {

// A limit of ~0 means that there is no limit.
inline constexpr uint64_t kNoLimit = ~uint64_t{0};

struct CpuFeatures {
  bool is_x86 = false;
  bool avx2 = false;
  bool avx512 = false;  // F, BW, DQ and VL: what the kernels use together
  bool avx512_bf16 = false;
  bool amx_bf16 = false;
};
// Reads the features from the text of /proc/cpuinfo.
CpuFeatures ParseCpuFeatures(const std::string& cpuinfo);

struct Space {
  uint64_t free_bytes = 0;  // for this user
  uint64_t total_bytes = 0;
};

struct MachineFindings {
  std::string kernel_release;
  absl::Status sealed_memfd;
  absl::Status noexec_seal;
  absl::Status populate_write;  // madvise(MADV_POPULATE_WRITE)
  absl::Status peer_pidfd;      // SO_PEERPIDFD
  absl::Status pidfd_open;
  absl::Status io_uring;
  os::Machine machine;
  uint64_t available_bytes = 0;
  int cgroup_version = 0;         // of the memory controller that limits this process; 0: none
  bool may_lock_memory = false;   // CAP_IPC_LOCK is effective: the limit does not matter
  uint64_t open_files_limit = 0;  // the hard limit, to which the daemon raises its own
  CpuFeatures cpu;
  std::string nvidia_driver;  // its version; empty: none
  std::optional<Space> dev_shm;
  std::string temporary_folder;
  std::optional<Space> temporary_space;
};
MachineFindings ReadMachineFindings();

struct SocketFindings {
  std::string path;
  bool exists = false;
  bool is_socket = false;
  uint32_t mode = 0;  // permission bits
  absl::Status reached;
  absl::Status attach_reached;
  absl::StatusOr<v1::Status> daemon = absl::UnavailableError("not asked");
};
// Blocks for at most `timeout`.
SocketFindings ReadSocketFindings(const std::string& path, absl::Duration timeout);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_DOCTOR_FINDINGS_H_
