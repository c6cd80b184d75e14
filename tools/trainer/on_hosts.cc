#include "tools/trainer/on_hosts.h"

#include <signal.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/loopback.h"
#include "base/status_macros.h"
#include "tools/trainer/host_file.h"
#include "tools/trainer/host_frames.h"
#include "tools/trainer/remote_host.h"

extern char** environ;

namespace geminid::trainer {
namespace {

// A daemon of a run's own takes its time.
constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr char kOwnVariables[] = "GEMINID_";
constexpr char kSocketEntry[] = "GEMINID_SOCKET=";
constexpr char kPortVariable[] = "MASTER_PORT";

// Those of this process that mean something on the hosts. What a host sets itself holds there, and
// which daemon it has is its own affair.
std::vector<std::string> VariablesForHosts() {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (absl::StartsWith(*entry, kSocketEntry)) continue;
    if (absl::StartsWith(*entry, kOwnVariables)) variables.emplace_back(*entry);
  }
  return variables;
}

bool IsThisHost(const std::string& name) {
  char own[HOST_NAME_MAX + 1] = {};
  gethostname(own, HOST_NAME_MAX);
  return base::IsLoopback(name) || name == own;
}

absl::StatusOr<std::string> PathOf(const char* what, const std::filesystem::path& path,
                                   std::error_code error) {
  if (!error) return path.string();
  return absl::UnavailableError(absl::StrCat("cannot find ", what, ": ", error.message()));
}

absl::StatusOr<RemoteHostOptions> OptionsForAll(const TrainOptions& options,
                                                const std::vector<std::string>& arguments) {
  RemoteHostOptions all;
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  GEMINID_ASSIGN_OR_RETURN(all.program, PathOf("the program itself", program, error));
  const auto folder = std::filesystem::current_path(error);
  GEMINID_ASSIGN_OR_RETURN(all.folder, PathOf("the working folder", folder, error));
  GEMINID_ASSIGN_OR_RETURN(all.version, OwnVersion());
  all.environment = VariablesForHosts();
  all.arguments = WithoutOptions(arguments, {std::begin(kHostsOptions), std::end(kHostsOptions)});
  all.remote_shell = absl::StrSplit(options.remote_shell, ' ', absl::SkipEmpty());
  all.silence = options.host_timeout;
  all.ranks = RanksOnHosts(options);
  return all;
}

}  // namespace

absl::Status CheckNoOtherLauncher(const collectives::Environment& environment) {
  const auto without_slurm = [&](const char* name) {
    return absl::StartsWith(name, "SLURM_") ? nullptr : environment(name);
  };
  GEMINID_ASSIGN_OR_RETURN(const collectives::RankInfo info,
                           collectives::RankInfoFrom(without_slurm));
  const char* const tasks = environment("SLURM_STEP_NUM_TASKS");
  const bool by_srun = tasks != nullptr && std::string(tasks) != "1";
  if (info.world_size == 1 && !by_srun) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--hosts starts the ranks itself, but this process is a rank of another launcher (torchrun, "
      "mpirun, srun); give --hosts to one process, or leave it out");
}

int RanksOnHosts(const TrainOptions& options) {
  return options.ranks.value_or(SlotsOf(options.hosts));
}

absl::StatusOr<int> LaunchOnHosts(const TrainOptions& options,
                                  const std::vector<std::string>& arguments, LaunchOptions launch) {
  GEMINID_ASSIGN_OR_RETURN(const std::vector<HostSlots> slots,
                           TakeSlots(options.hosts, RanksOnHosts(options)));
  GEMINID_ASSIGN_OR_RETURN(const RemoteHostOptions all, OptionsForAll(options, arguments));
  std::vector<std::unique_ptr<RemoteHost>> hosts;
  std::vector<RemoteHost*> pointers;
  for (const HostSlots& host : slots) {
    RemoteHostOptions one = all;
    one.name = host.name;
    one.ranks_here = host.ranks;
    if (IsThisHost(host.name)) one.remote_shell.clear();
    GEMINID_ASSIGN_OR_RETURN(std::unique_ptr<RemoteHost> started,
                             RemoteHost::Start(std::move(one)));
    pointers.push_back(started.get());
    launch.places.push_back({started.get(), host.ranks});
    hosts.push_back(std::move(started));
  }
  // A stopped process says nothing, and the hosts would take it for lost.
  sigset_t stop, before;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  sigprocmask(SIG_BLOCK, &stop, &before);
  const absl::Cleanup restore = [&] { sigprocmask(SIG_SETMASK, &before, nullptr); };
  const Beats beats(pointers);
  GEMINID_RETURN_IF_ERROR(AwaitHosts(pointers, kPatience));
  launch.ranks = RanksOnHosts(options);
  launch.master_address = slots.size() == 1 ? "127.0.0.1" : slots.front().name;
  const char* const port = std::getenv(kPortVariable);
  if (port != nullptr) launch.environment.emplace_back(kPortVariable, port);
  return Launch(launch);
}

}  // namespace geminid::trainer
