// The program geminid: parses, wires, runs. Everything else is in daemon/service.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/command_line.h"
#include "base/exit_status.h"
#include "base/job_signals.h"
#include "base/machine_memory.h"
#include "base/process_limits.h"
#include "base/standard_streams.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "base/unique_fd.h"
#include "daemon/config/memory_defaults.h"
#include "daemon/config/settings.h"
#include "daemon/gpus/agent_process.h"
#include "daemon/holder/holder_store.h"
#include "daemon/holder/systemd_store.h"
#include "daemon/memory/headroom.h"
#include "daemon/os/crash_note.h"
#include "daemon/os/event.h"
#include "daemon/os/limits.h"
#include "daemon/os/log.h"
#include "daemon/os/machine.h"
#include "daemon/os/terminal.h"
#include "daemon/service/entry/daemon.h"
#include "daemon/service/entry/devices.h"
#include "daemon/service/entry/engine_settings.h"
#include "daemon/service/entry/socket_files.h"
#include "daemon/service/entry/version.h"

namespace geminid {
namespace {

struct CommandLine {
  std::string config;
  bool check_config = false;
  bool is_private = false;
  bool outlive_terminal = false;
  std::string parent_pid;
  std::string ready_fd;
  std::map<std::string, std::string> settings;  // by key of the configuration
};

struct SettingFlag {
  const char* flag;
  const char* key;
  const char* help;
};
// Texts all of them: they are parsed with the rules of the configuration file.
constexpr SettingFlag kSettingFlags[] = {
    {"--socket", "socket",
     "Path of the gRPC socket; PATH.attach, PATH.http and PATH.lock appear beside it"},
    {"--metrics-listen", "metrics_listen",
     "ADDRESS:PORT for Prometheus, or off; port 0 is any free one"},
    {"--host-memory", "host_memory", "Most host memory to hand out, such as 64GiB"},
    {"--device-memory", "device_memory",
     "Most memory of one host device to hand out; short for --device host:0=SIZE"},
    {"--log-level", "log_level", "debug, info, warning or error"},
    {"--log-format", "log_format", "text or json"},
};

int Fail(const std::string& message, int exit_code) {
  std::cerr << "geminid: " << message << '\n';
  return exit_code;
}

// Ends a run that only printed something.
int Finish(base::DaemonExitCode code) {
  const absl::Status printed = base::FinishOutput(std::cout);
  if (printed.ok()) return code;
  return Fail(std::string(printed.message()), base::DaemonExitCodeOf(printed.code()));
}

// The exit code, when there is nothing to run.
std::optional<int> Parse(int argc, char** argv, CommandLine* line) {
  CLI::App app("geminid: makes one node's GPU memory, host memory and disk one memory for training",
               "geminid");
  app.set_version_flag("--version", absl::StrCat("geminid ", service::kVersion));
  app.add_option("--config", line->config, "Configuration file, .textproto or .json");
  app.add_flag("--check-config", line->check_config,
               "Check the configuration and exit: 0 if it is good, 78 if not");
  std::map<std::string, std::string> values;
  for (const SettingFlag& setting : kSettingFlags) {
    app.add_option(setting.flag, values[setting.key], setting.help);
  }
  std::vector<std::string> devices;
  app.add_option("--device", devices,
                 "A device, as host:INDEX=SIZE[@NUMA_NODE] or cuda:INDEX[=SIZE][@GPU]; several "
                 "times, or separated by commas: host:0=8GiB,cuda:1=64GiB; cuda: all GPUs")
      ->allow_extra_args(false);
  app.add_flag("--private", line->is_private,
               "Serve one process tree: end once the parent has ended and no session is attached");
  app.add_flag("--outlive-terminal", line->outlive_terminal,
               "Keep running when the daemon's terminal is closed; otherwise the daemon ends then");
  app.add_option("--parent-pid", line->parent_pid,
                 "The parent of --private; by default, who "
                 "started this program");
  app.add_option("--ready-fd", line->ready_fd,
                 "Write 'ready' and a newline to this descriptor once clients can connect, and "
                 "close it");
  base::RefuseEmptyValues(&app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0 || base::HasUnknownWords(app)) {
      return Fail(base::DescribeParseError(app, error), base::kDaemonExitUsage);
    }
    app.exit(error);  // prints the help or the version
    return Finish(base::kDaemonExitOk);
  }
  for (const SettingFlag& setting : kSettingFlags) {
    if (app.count(setting.flag) > 0) line->settings[setting.key] = values[setting.key];
  }
  if (!devices.empty()) line->settings["device"] = absl::StrJoin(devices, ",");
  return std::nullopt;
}

std::optional<std::string> Environment(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

void SayReady(const service::Daemon& daemon, os::LogFormat format, int ready_fd) {
  std::string line = absl::StrCat("geminid ready: socket ", daemon.socket());
  if (!daemon.metrics_address().empty()) {
    absl::StrAppend(&line, " metrics http://", daemon.metrics_address(), "/metrics");
  }
  if (format == os::LogFormat::kJson) {
    os::Log(os::LogLevel::kInfo, line);
  } else {
    std::cerr << line << '\n';
  }
  if (ready_fd < 0) return;
  const std::string word = "ready\n";
  (void)!base::RetryOnEintr([&] { return ::write(ready_fd, word.data(), word.size()); });
  ::close(ready_fd);
}

int Fail(const absl::Status& status) {
  return Fail(std::string(base::WithLimits(status).message()),
              base::DaemonExitCodeOf(status.code()));
}

// The configuration, with what the machine decides where nobody else does.
absl::StatusOr<config::Settings> ReadSettings(const CommandLine& line) {
  GEMINID_ASSIGN_OR_RETURN(
      config::Settings settings,
      config::ResolveSettings(
          {.config_path = line.config, .flags = line.settings, .environment = Environment}));
  GEMINID_RETURN_IF_ERROR(config::FillInMemory(
      {.total_bytes = base::TotalMemoryBytes(), .available_bytes = base::AvailableMemoryBytes()},
      &settings));
  return settings;
}

// The checks of a start that look at this machine and change nothing.
absl::Status CheckMachine(config::Settings settings) {
  GEMINID_RETURN_IF_ERROR(service::SocketFiles::CheckFolder(settings.socket));
  GEMINID_ASSIGN_OR_RETURN(const std::vector<gpus::NodeDevice> devices,
                           service::FindDevices(gpus::AgentBesideThisProgram(), &settings));
  return service::HubOptionsOf(settings, devices, os::SystemNuma(), /*daemon_epoch=*/1).status();
}

void WarnOfHeadroom(const config::Settings& settings) {
  const std::string why = config::LacksHeadroom({.total_bytes = base::TotalMemoryBytes()}, settings,
                                                memory::kHeadroomBytes);
  if (why.empty()) return;
  os::Log(os::LogLevel::kWarning, "the daemon will refuse to hand out the last part of the memory",
          {{"why", why}, {"advice", "lower host_memory or the device memory, or raise the limit"}});
}

absl::Status PrepareProcess(const config::Settings& settings) {
  os::WatchForCrashes();
  uint64_t largest = *settings.host_bytes;
  uint64_t total = *settings.host_bytes;
  for (const config::DeviceSetting& device : settings.devices) {
    if (device.kind != shm::DeviceKind::kHost) continue;
    largest = std::max(largest, device.bytes);
    total += device.bytes;
  }
  return os::CheckLimits(os::RaiseLimits(), largest, total);
}

// What a shared daemon does besides: nobody else ends it.
void PrepareShared(const CommandLine& line, service::DaemonOptions* options) {
  options->read_settings = [line] {
    return config::ResolveSettings(
        {.config_path = line.config, .flags = line.settings, .environment = Environment});
  };
  struct sigaction hangup = {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  // nohup asks to go on too, but leaves SIGHUP ignored, which then could not ask for a reload.
  const bool asked = line.outlive_terminal || hangup.sa_handler == SIG_IGN;
  ::signal(SIGHUP, SIG_DFL);
  if (!asked) options->terminal = os::OpenControllingTerminal();
}

// Whether the signal that came before the daemon serves ends it. Takes it from the descriptor.
bool IsToEnd(int signals, pid_t parent_pid) {
  base::UniqueFd borrowed(signals);
  const os::ReceivedSignal signal = os::NextSignal(borrowed);
  (void)borrowed.Release();
  if (signal.number != SIGTERM && signal.number != SIGINT) return false;
  return parent_pid == 0 || signal.sender == parent_pid;
}

// systemd's store where it has one for this process, else a holder of our own.
absl::StatusOr<std::unique_ptr<holder::DescriptorStore>> OpenStore(
    const config::Settings& settings, pid_t parent_pid, int signals,
    std::vector<holder::StoredDescriptor> handed_over) {
  if (std::unique_ptr<holder::DescriptorStore> store =
          holder::SystemdStore::Open(std::move(handed_over)))
    return store;
  absl::StatusOr<std::string> binary = holder::FindHolder();
  if (!binary.ok()) {
    os::Log(os::LogLevel::kWarning, "if this daemon dies, its sessions end",
            {{"why", std::string(binary.status().message())}});
    return std::make_unique<holder::NoStore>();
  }
  GEMINID_ASSIGN_OR_RETURN(
      std::unique_ptr<holder::HolderStore> store,
      holder::HolderStore::Open(
          {.binary = *std::move(binary),
           .socket = absl::StrCat(settings.socket, shm::kHolderSuffix),
           .patience = settings.restart_time,
           .until = parent_pid,
           .signals = signals,
           .is_to_end = [parent_pid, signals] { return IsToEnd(signals, parent_pid); }}));
  return store;
}

int Serve(const CommandLine& line, const config::Settings& settings, pid_t parent_pid,
          int ready_fd) {
  service::DaemonOptions options;
  options.parent_pid = parent_pid;
  // Before anything is opened, which could get the number of one that is said to be handed over.
  const auto handed_over =
      std::make_shared<std::vector<holder::StoredDescriptor>>(holder::TakeHandedOver());
  absl::StatusOr<base::UniqueFd> signals = os::CreateSignalFd({SIGTERM, SIGINT, SIGHUP});
  if (!signals.ok()) return Fail(signals.status());
  options.signal_fd = *std::move(signals);
  options.control_listener = holder::TakeNamed(holder::kControlListener, handed_over.get());
  options.attach_listener = holder::TakeNamed(holder::kAttachListener, handed_over.get());
  if (absl::Status known = holder::CheckNoListener(*handed_over); !known.ok()) return Fail(known);
  if (settings.restart_time > absl::ZeroDuration()) {
    options.open_store = [&settings, parent_pid, number = options.signal_fd.get(), handed_over] {
      return OpenStore(settings, parent_pid, number, std::move(*handed_over));
    };
  } else {
    handed_over->clear();  // an earlier daemon's sessions end
  }
  if (parent_pid == 0) PrepareShared(line, &options);
  absl::StatusOr<std::unique_ptr<service::Daemon>> daemon =
      service::Daemon::Start(settings, std::move(options));
  if (absl::IsCancelled(daemon.status())) {
    os::Log(os::LogLevel::kInfo, "stopping", {{"why", std::string(daemon.status().message())}});
    return base::kDaemonExitOk;
  }
  if (!daemon.ok()) return Fail(daemon.status());
  SayReady(**daemon, settings.log_format, ready_fd);
  (*daemon)->Run();
  // The sockets are gone and the sessions told. A plan that is being made still, or memory that is
  // being given back, is not waited for.
  std::_Exit(base::kDaemonExitOk);
}

// The parent of a private daemon; 0: it is shared.
absl::StatusOr<pid_t> FindParent(const CommandLine& line) {
  if (!line.is_private) {
    if (line.parent_pid.empty()) return 0;
    return absl::InvalidArgumentError("--parent-pid needs --private");
  }
  pid_t parent_pid = ::getppid();
  if (!line.parent_pid.empty() &&
      (!absl::SimpleAtoi(line.parent_pid, &parent_pid) || parent_pid <= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--parent-pid: '", line.parent_pid, "' is not a process number"));
  }
  // An interrupt typed at the terminal is for the program; the daemon ends when that has ended.
  ::setsid();
  return parent_pid;
}

int Main(int argc, char** argv) {
  base::PrepareStandardStreams();
  CommandLine line;
  if (const std::optional<int> exit_code = Parse(argc, argv, &line)) return *exit_code;
  absl::StatusOr<config::Settings> settings = ReadSettings(line);
  if (!settings.ok()) return Fail(settings.status());
  os::ConfigureLog(settings->log_level, settings->log_format);
  WarnOfHeadroom(*settings);
  // Its one user has nobody to be fair to.
  if (line.is_private && settings->quotas.empty()) {
    settings->quotas.push_back({.tenant = "*", .max_priority = config::kMaxPriority});
  }
  if (line.check_config) {
    if (absl::Status here = CheckMachine(*settings); !here.ok()) return Fail(here);
    std::cout << "the configuration is good\n";
    return Finish(base::kDaemonExitOk);
  }
  int ready_fd = -1;
  if (!line.ready_fd.empty() && (!absl::SimpleAtoi(line.ready_fd, &ready_fd) ||
                                 ::fcntl(ready_fd, F_SETFD, FD_CLOEXEC) != 0)) {
    return Fail(absl::StrCat("--ready-fd: '", line.ready_fd, "' is not an open descriptor"),
                base::kDaemonExitUsage);
  }
  const absl::StatusOr<pid_t> parent_pid = FindParent(line);
  if (!parent_pid.ok()) {
    return Fail(std::string(parent_pid.status().message()), base::kDaemonExitUsage);
  }
  // They would end it and leave its socket, on which nobody listens.
  base::IgnoreWarnings();
  base::IgnoreStraySignals();
  if (absl::Status status = PrepareProcess(*settings); !status.ok()) return Fail(status);
  return Serve(line, *settings, *parent_pid, ready_fd);
}

}  // namespace
}  // namespace geminid

// NOLINTNEXTLINE(bugprone-exception-escape): out of memory at the start ends the program anyhow
int main(int argc, char** argv) { return geminid::Main(argc, argv); }
