// The program geminid-agent: one GPU's memory, made for the daemon that started it.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <climits>
#include <iostream>
#include <string>
#include <vector>

#include "base/command_line.h"
#include "base/exit_status.h"
#include "base/job_signals.h"
#include "base/standard_streams.h"
#include "base/unique_fd.h"
#include "daemon/agent/messages.h"
#include "daemon/agent/serve.h"

namespace geminid::agent {
namespace {

bool IsDaemonsSocket(int fd) {
  int type = 0;
  socklen_t size = sizeof(type);
  return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
}

// Closes the daemon's other descriptors, and makes this process end with the daemon.
void BecomeAnAgent() {
  ::syscall(SYS_close_range, kAgentSocket + 1, UINT_MAX,
            0);  // Linux 5.9; the daemon's close on exec
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  base::IgnoreJobSignals();  // the daemon decides
}

int Fail(const std::string& message, int exit_code) {
  std::cerr << "geminid-agent: " << message << '\n';
  return exit_code;
}

int Main(int argc, char** argv) {
  base::PrepareStandardStreams();
  CLI::App app("Holds the memory of one GPU for geminid, which starts this program.",
               "geminid-agent");
  app.set_version_flag("--version", "geminid-agent " GEMINID_VERSION);
  std::string gpu;
  bool probe = false;
  app.add_option("--gpu", gpu, "UUID of the GPU; only geminid gives this flag");
  app.add_flag("--probe", probe, "List the GPUs, as geminid would find them");
  base::RefuseEmptyValues(&app);
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  std::ranges::reverse(arguments);  // the last first
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return Fail(base::DescribeParseError(app, error), base::kDaemonExitUsage);
  }
  const bool has_daemon = IsDaemonsSocket(kAgentSocket);
  if (probe == !gpu.empty() || (!probe && !has_daemon)) {
    return Fail("geminid starts this program for each GPU; by hand run geminid-agent --probe",
                base::kDaemonExitUsage);
  }
  if (!has_daemon) {
    const absl::Status printed = PrintGpus();
    if (printed.ok()) return base::kDaemonExitOk;
    return Fail(std::string(printed.message()), base::DaemonExitCodeOf(printed.code()));
  }
  BecomeAnAgent();
  const base::UniqueFd socket(kAgentSocket);
  const absl::Status status = probe ? Probe(socket) : Serve(socket, gpu);
  // Exits without the driver's cleanup, which may hang; the kernel takes the memory back. The
  // daemon has been told the reason and writes it into its log.
  ::_exit(status.ok() ? base::kDaemonExitOk : base::DaemonExitCodeOf(status.code()));
}

}  // namespace
}  // namespace geminid::agent

// NOLINTNEXTLINE(bugprone-exception-escape): out of memory at the start ends the program anyhow
int main(int argc, char** argv) { return geminid::agent::Main(argc, argv); }
