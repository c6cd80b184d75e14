#include "tools/geminictl/doctor/findings.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "base/machine_memory.h"
#include "base/memfd.h"
#include "base/pages.h"
#include "base/system_error.h"
#include "base/unique_fd.h"
#include "daemon/os/event.h"
#include "daemon/os/peer_pidfd.h"
#include "daemon/os/unix_socket.h"
#include "proto/shm/attach_messages.h"
#include "tools/geminictl/daemon/daemon_client.h"

namespace geminid::ctl {
namespace {

// Newer than Debian 12's headers: linux/memfd.h of 6.3 and asm-generic/socket.h of 6.5.
constexpr unsigned kNoExecSeal = 0x0008u;
// linux/capability.h; its number in the mask of /proc/self/status.
constexpr int kCapIpcLock = 14;
constexpr int kHexadecimal = 16;

absl::Status ProbeNoExecSeal() {
  const base::UniqueFd fd(::memfd_create("geminictl", MFD_CLOEXEC | kNoExecSeal));
  return fd.valid() ? absl::OkStatus()
                    : base::SystemError(errno, "memfd_create", "MFD_NOEXEC_SEAL");
}

absl::Status ProbePopulateWrite() {
  void* const page =
      ::mmap(nullptr, base::kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return base::SystemError(errno, "mmap", "one page");
  const bool good = ::madvise(page, base::kPageBytes, MADV_POPULATE_WRITE) == 0;
  const int error = errno;
  ::munmap(page, base::kPageBytes);
  return good ? absl::OkStatus() : base::SystemError(error, "madvise", "MADV_POPULATE_WRITE");
}

absl::Status ProbePeerPidfd() {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return base::SystemError(errno, "socketpair", "AF_UNIX");
  }
  const base::UniqueFd near(pair[0]);
  const base::UniqueFd far(pair[1]);
  int pidfd = -1;
  socklen_t size = sizeof(pidfd);
  if (::getsockopt(near.get(), SOL_SOCKET, os::kSoPeerPidfd, &pidfd, &size) != 0) {
    return base::SystemError(errno, "getsockopt", "SO_PEERPIDFD");
  }
  const base::UniqueFd closes_it(pidfd);
  return absl::OkStatus();
}

absl::Status ProbeIoUring() {
  io_uring_params params = {};
  const base::UniqueFd ring(static_cast<int>(::syscall(SYS_io_uring_setup, 1, &params)));
  return ring.valid() ? absl::OkStatus() : base::SystemError(errno, "io_uring_setup", "one entry");
}

int FindCgroupVersion() {
  const std::string text = base::ReadKernelFile("/proc/self/cgroup");
  for (const auto& line : absl::StrSplit(text, '\n')) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    for (const std::string& controller : controllers) {
      if (controller == "memory") return 1;
    }
    if (parts[0] != "0") continue;
    const std::string offered =
        base::ReadKernelFile(absl::StrCat("/sys/fs/cgroup", parts[2], "/cgroup.controllers"));
    for (const auto& controller : absl::StrSplit(offered, absl::ByAnyChar(" \n"))) {
      if (controller == "memory") return 2;
    }
  }
  return 0;
}

bool MayLockMemory() {
  for (const auto& line : absl::StrSplit(base::ReadKernelFile("/proc/self/status"), '\n')) {
    const std::vector<std::string> parts = absl::StrSplit(line, '\t');
    if (parts.size() != 2 || parts[0] != "CapEff:") continue;
    return (std::strtoull(parts[1].c_str(), nullptr, kHexadecimal) >> kCapIpcLock & 1) != 0;
  }
  return false;
}

uint64_t OpenFilesLimit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  return limit.rlim_max == RLIM_INFINITY ? kNoLimit : limit.rlim_max;
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu ...": the first word that begins
// with a digit.
std::string NvidiaDriver() {
  const std::string text = base::ReadKernelFile("/proc/driver/nvidia/version");
  std::istringstream words(text);
  std::string word;
  while (words >> word) {
    if (word[0] >= '0' && word[0] <= '9') return word;
  }
  return text.empty() ? "" : "of unknown version";
}

std::optional<Space> SpaceOf(const std::string& folder) {
  struct statvfs info = {};
  if (::statvfs(folder.c_str(), &info) != 0) return std::nullopt;
  return Space{info.f_bavail * info.f_frsize, info.f_blocks * info.f_frsize};
}

}  // namespace

CpuFeatures ParseCpuFeatures(const std::string& cpuinfo) {
  CpuFeatures features;
  for (const auto& line : absl::StrSplit(cpuinfo, '\n')) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (parts.size() != 2 || parts[0].substr(0, parts[0].find_last_not_of("\t ") + 1) != "flags") {
      continue;
    }
    std::istringstream words(parts[1]);
    std::set<std::string> flags;
    for (std::string word; words >> word;) flags.insert(word);
    features.is_x86 = true;
    features.avx2 = flags.count("avx2") > 0;
    features.avx512 = flags.count("avx512f") > 0 && flags.count("avx512bw") > 0 &&
                      flags.count("avx512dq") > 0 && flags.count("avx512vl") > 0;
    features.avx512_bf16 = flags.count("avx512_bf16") > 0;
    features.amx_bf16 = flags.count("amx_bf16") > 0;
    break;  // processors of one machine are alike
  }
  return features;
}

MachineFindings ReadMachineFindings() {
  MachineFindings found;
  utsname kernel = {};
  if (::uname(&kernel) == 0) found.kernel_release = kernel.release;
  found.sealed_memfd = base::CreateSealedMemfd("geminictl", base::kPageBytes).status();
  found.noexec_seal = ProbeNoExecSeal();
  found.populate_write = ProbePopulateWrite();
  found.peer_pidfd = ProbePeerPidfd();
  found.pidfd_open = os::OpenPidfd(::getpid()).status();
  found.io_uring = ProbeIoUring();
  found.machine = os::ReadMachine();
  found.available_bytes = base::AvailableMemoryBytes();
  found.cgroup_version = FindCgroupVersion();
  found.may_lock_memory = MayLockMemory();
  found.open_files_limit = OpenFilesLimit();
  found.cpu = ParseCpuFeatures(base::ReadKernelFile("/proc/cpuinfo"));
  found.nvidia_driver = NvidiaDriver();
  found.dev_shm = SpaceOf("/dev/shm");
  const char* const folder = std::getenv("TMPDIR");
  found.temporary_folder = folder == nullptr || *folder == '\0' ? "/tmp" : folder;
  if (::access(found.temporary_folder.c_str(), W_OK) == 0) {
    found.temporary_space = SpaceOf(found.temporary_folder);
  }
  return found;
}

SocketFindings ReadSocketFindings(const std::string& path, absl::Duration timeout) {
  SocketFindings found;
  found.path = path;
  struct stat info = {};
  if (::stat(path.c_str(), &info) == 0) {
    found.exists = true;
    found.is_socket = S_ISSOCK(info.st_mode);
    found.mode = info.st_mode & 0777;
  }
  found.reached = ProbeSocket(path);
  found.attach_reached = absl::UnavailableError("not tried");
  if (!found.reached.ok()) return found;
  found.attach_reached = os::ConnectSeqpacket(absl::StrCat(path, shm::kAttachSuffix)).status();
  const absl::StatusOr<std::unique_ptr<DaemonClient>> client = DaemonClient::Connect(path, timeout);
  if (!client.ok()) {
    found.daemon = client.status();
  } else {
    found.daemon = (*client)->GetStatus();
  }
  return found;
}

}  // namespace geminid::ctl
