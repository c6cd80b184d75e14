#include "tests/tools/trainer/network_hosts.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace geminid::trainer {
namespace {

namespace fs = std::filesystem;

std::string NetworkOf(pid_t pid) {
  std::error_code gone;
  return fs::read_symlink(absl::StrCat("/proc/", pid, "/ns/net"), gone).string();
}

// A process that keeps a network and a mount of its own until its input ends; it says when they are
// there.
pid_t Keep(int input, int output) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  execlp("unshare", "unshare", "--net", "--mount", "--ipc", "/bin/sh", "-c",
         "mount -t tmpfs tmpfs /dev/shm && ip link set lo up && echo ready && exec cat >/dev/null",
         nullptr);
  _exit(127);
}

bool Run(const std::string& line) { return std::system((line + " 2>/dev/null").c_str()) == 0; }

}  // namespace

std::unique_ptr<NetworkHosts> NetworkHosts::Make() {
  std::unique_ptr<NetworkHosts> hosts(new NetworkHosts);
  return hosts->Start() ? std::move(hosts) : nullptr;
}

bool NetworkHosts::Start() {
  for (int host = 0; host < 2; ++host) {
    int says[2], never[2];
    if (pipe2(says, O_CLOEXEC) != 0 || pipe2(never, O_CLOEXEC) != 0) return false;
    keepers_[host] = Keep(never[0], says[1]);
    inputs_[host] = base::UniqueFd(never[1]);
    close(says[1]);
    close(never[0]);
    char byte = 0;
    const bool ready = read(says[0], &byte, 1) == 1;
    close(says[0]);
    if (!ready) return false;
  }
  const auto in = [&](int host) { return absl::StrCat("nsenter -t ", keepers_[host], " -n "); };
  std::string script = "case $1 in\n";
  if (!Run(absl::StrCat(in(0), "ip link add eth0 type veth peer name eth0 netns ", keepers_[1]))) {
    return false;
  }
  for (int host = 0; host < 2; ++host) {
    if (!Run(absl::StrCat(in(host), "ip addr add ", kNames[host], "/24 dev eth0")) ||
        !Run(absl::StrCat(in(host), "ip link set eth0 up"))) {
      return false;
    }
    absl::StrAppend(&script, kNames[host], ") pid=", keepers_[host], " ;;\n");
  }
  absl::StrAppend(&script, "*) echo no route to $1 >&2; exit 255 ;;\nesac\n",
                  "exec nsenter -t $pid -n -m -i /bin/sh -c \"$2\"\n");
  shell_ = folder_.Write("shell", "#!/bin/sh\n" + script);
  fs::permissions(shell_, fs::perms::owner_all);
  return true;
}

NetworkHosts::~NetworkHosts() {
  for (int host = 0; host < 2; ++host) {
    if (keepers_[host] <= 0) continue;
    for (const pid_t pid : ProcessesOf(host)) kill(pid, SIGKILL);
    kill(keepers_[host], SIGKILL);
    waitpid(keepers_[host], nullptr, 0);
  }
}

std::vector<pid_t> NetworkHosts::ProcessesOf(int host) const {
  const std::string network = NetworkOf(keepers_[host]);
  std::vector<pid_t> pids;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (!std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); })) {
      continue;
    }
    const pid_t pid = std::stoi(name);
    if (pid != keepers_[host] && !network.empty() && NetworkOf(pid) == network) pids.push_back(pid);
  }
  return pids;
}

}  // namespace geminid::trainer
