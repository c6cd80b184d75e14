#include "tests/base/network_hosts.h"

#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace geminid::base {
namespace {

namespace fs = std::filesystem;

std::string NetworkOf(pid_t pid) {
  std::error_code gone;
  return fs::read_symlink(absl::StrCat("/proc/", pid, "/ns/net"), gone).string();
}

absl::Status Run(const std::string& line) {
  if (std::system((line + " 2>/dev/null").c_str()) == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("failed: ", line));
}

absl::Status RunIn(pid_t keeper, const std::string& line) {
  return Run(absl::StrCat("nsenter -t ", keeper, " -n ", line));
}

std::string PortOf(int host) { return absl::StrCat("port", host); }

absl::Status Enter(pid_t pid, const char* space) {
  const std::string path = absl::StrCat("/proc/", pid, "/ns/", space);
  const UniqueFd entrance(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (entrance.valid() && setns(entrance.get(), 0) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, path);
}

absl::Status SetFlags(const std::string& device, bool up) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request = {};
  device.copy(request.ifr_name, IFNAMSIZ - 1);
  if (ioctl(socket.get(), SIOCGIFFLAGS, &request) != 0) return absl::ErrnoToStatus(errno, device);
  request.ifr_flags =
      static_cast<short>(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
  if (ioctl(socket.get(), SIOCSIFFLAGS, &request) != 0) return absl::ErrnoToStatus(errno, device);
  return absl::OkStatus();
}

// Runs at once, on a thread in the keeper's network: programs for this take their time on a busy
// machine, and tests count that time.
absl::Status SetUp(pid_t keeper, const std::string& device, bool up) {
  absl::Status status;
  std::thread([&] {
    status = Enter(keeper, "net");
    if (status.ok()) status = SetFlags(device, up);
  }).join();
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NetworkHosts>> NetworkHosts::Make(int count) {
  std::unique_ptr<NetworkHosts> hosts(new NetworkHosts);
  GEMINID_RETURN_IF_ERROR(hosts->Start(count));
  return hosts;
}

bool NetworkHosts::MayBeSkipped() {
  return ::geteuid() != 0 || std::getenv("GEMINID_TESTS_WITHOUT_NAMESPACES") != nullptr;
}

std::string NetworkHosts::NameOf(int host) { return absl::StrCat("10.78.0.", host + 1); }

// Starts a process that keeps its own network and mount until its input ends, and that reports when
// they are ready.
absl::StatusOr<NetworkHosts::Kept> NetworkHosts::Keep() {
  int says[2], never[2];
  if (pipe2(says, O_CLOEXEC) != 0 || pipe2(never, O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "pipe2");
  }
  Kept kept{.pid = fork()};
  if (kept.pid == 0) {
    dup2(never[0], STDIN_FILENO);
    dup2(says[1], STDOUT_FILENO);
    execlp("unshare", "unshare", "--net", "--mount", "--ipc", "/bin/sh", "-c",
           "mount -t tmpfs tmpfs /dev/shm && ip link set lo up && echo ready && "
           "exec cat >/dev/null",
           nullptr);
    _exit(127);
  }
  kept.input = UniqueFd(never[1]);
  close(says[1]);
  close(never[0]);
  char byte = 0;
  const bool ready = read(says[0], &byte, 1) == 1;
  close(says[0]);
  if (ready) return kept;
  End(kept);
  return absl::UnavailableError("failed: unshare --net --mount --ipc, mount, ip link set lo up");
}

absl::Status NetworkHosts::Start(int count) {
  GEMINID_ASSIGN_OR_RETURN(switch_, Keep());
  GEMINID_RETURN_IF_ERROR(RunIn(switch_.pid, "ip link add name switch type bridge"));
  GEMINID_RETURN_IF_ERROR(RunIn(switch_.pid, "ip link set switch up"));
  for (int host = 0; host < count; ++host) GEMINID_RETURN_IF_ERROR(AddHost(host));
  WriteShell();
  return absl::OkStatus();
}

absl::Status NetworkHosts::AddHost(int host) {
  GEMINID_ASSIGN_OR_RETURN(Kept kept, Keep());
  hosts_.push_back(std::move(kept));
  const pid_t pid = hosts_.back().pid;
  const std::string port = PortOf(host);
  GEMINID_RETURN_IF_ERROR(
      RunIn(switch_.pid,
            absl::StrCat("ip link add name ", port, " type veth peer name eth0 netns ", pid)));
  GEMINID_RETURN_IF_ERROR(
      RunIn(switch_.pid, absl::StrCat("ip link set ", port, " master switch up")));
  GEMINID_RETURN_IF_ERROR(RunIn(pid, absl::StrCat("ip addr add ", NameOf(host), "/24 dev eth0")));
  return RunIn(pid, "ip link set eth0 up");
}

void NetworkHosts::WriteShell() {
  std::string script = "#!/bin/sh\ncase $1 in\n";
  for (int host = 0; host < count(); ++host) {
    absl::StrAppend(&script, NameOf(host), ") pid=", hosts_[static_cast<size_t>(host)].pid,
                    " ;;\n");
  }
  absl::StrAppend(&script, "*) echo no route to $1 >&2; exit 255 ;;\nesac\n",
                  "exec nsenter -t $pid -n -m -i /bin/sh -c \"$2\"\n");
  shell_ = folder_.Write("shell", script);
  fs::permissions(shell_, fs::perms::owner_all);
}

NetworkHosts::~NetworkHosts() {
  for (const Kept& kept : hosts_) {
    for (const pid_t pid : ProcessesIn(kept)) kill(pid, SIGKILL);
    End(kept);
  }
  End(switch_);
}

void NetworkHosts::End(const Kept& kept) {
  if (kept.pid <= 0) return;
  kill(kept.pid, SIGKILL);
  waitpid(kept.pid, nullptr, 0);
}

std::vector<pid_t> NetworkHosts::ProcessesOf(int host) const {
  return ProcessesIn(hosts_[static_cast<size_t>(host)]);
}

std::vector<pid_t> NetworkHosts::ProcessesIn(const Kept& kept) const {
  const std::string network = NetworkOf(kept.pid);
  std::vector<pid_t> pids;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (!std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); })) {
      continue;
    }
    const pid_t pid = std::stoi(name);
    if (pid != kept.pid && !network.empty() && NetworkOf(pid) == network) pids.push_back(pid);
  }
  return pids;
}

absl::Status NetworkHosts::Enter(int host) const {
  for (const char* const what : {"net", "ipc", "mnt"}) {
    GEMINID_RETURN_IF_ERROR(base::Enter(hosts_[static_cast<size_t>(host)].pid, what));
  }
  return absl::OkStatus();
}

// Acts on the switch's end of the wire: the host's own end keeps its addresses and routes.
absl::Status NetworkHosts::Cut(int host) const { return SetUp(switch_.pid, PortOf(host), false); }

absl::Status NetworkHosts::Heal(int host) const { return SetUp(switch_.pid, PortOf(host), true); }

absl::Status NetworkHosts::Slow(int host, const std::string& rate) const {
  const auto line = [&](const std::string& device) {
    return absl::StrCat("tc qdisc replace dev ", device, " root tbf rate ", rate,
                        " burst 128kb latency 50ms");
  };
  GEMINID_RETURN_IF_ERROR(RunIn(hosts_[static_cast<size_t>(host)].pid, line("eth0")));
  return RunIn(switch_.pid, line(PortOf(host)));
}

absl::Status NetworkHosts::Part(int first) const {
  GEMINID_RETURN_IF_ERROR(RunIn(switch_.pid, "ip link add name other type bridge"));
  GEMINID_RETURN_IF_ERROR(RunIn(switch_.pid, "ip link set other up"));
  // One program makes all changes, so that they happen nearly at once.
  std::string lines;
  for (int host = first; host < count(); ++host) {
    absl::StrAppend(&lines, "link set ", PortOf(host), " master other\n");
  }
  return RunIn(switch_.pid, absl::StrCat("ip -batch ", folder_.Write("part", lines)));
}

}  // namespace geminid::base
