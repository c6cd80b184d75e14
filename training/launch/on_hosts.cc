#include "training/launch/on_hosts.h"

#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/counted.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "training/launch/host_file.h"
#include "training/launch/host_frames.h"
#include "training/launch/host_list.h"
#include "training/launch/host_name.h"
#include "training/launch/remote_host.h"

extern char** environ;

namespace geminid::trainer {
namespace {

// The time to become ready; a host may have to start a daemon for the run.
constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr char kOwnVariables[] = "GEMINID_";
constexpr char kSocketEntry[] = "GEMINID_SOCKET=";
constexpr char kPortVariable[] = "MASTER_PORT";

// The variables of this process that apply on all hosts. A host's own value has precedence. The
// socket is left out, because each host has its own daemon.
std::vector<std::string> VariablesForHosts() {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (absl::StartsWith(*entry, kSocketEntry)) continue;
    if (absl::StartsWith(*entry, kOwnVariables)) variables.emplace_back(*entry);
  }
  return variables;
}

absl::StatusOr<std::string> PathOf(const char* what, const std::filesystem::path& path,
                                   std::error_code error) {
  if (!error) return path.string();
  return absl::UnavailableError(absl::StrCat("cannot find ", what, ": ", error.message()));
}

absl::StatusOr<RemoteHostOptions> OptionsForAll(const RunOnHosts& run,
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
  all.remote_shell = absl::StrSplit(run.remote_shell, ' ', absl::SkipEmpty());
  all.silence = run.host_timeout;
  all.ranks = run.ranks;
  return all;
}

// A stopped process sends no beats, so the hosts would count it as lost. Returns the mask before.
sigset_t HoldBackStops() {
  sigset_t stop, before;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  sigprocmask(SIG_BLOCK, &stop, &before);
  return before;
}

// An agent on the host that `options` name, which hears all the time that this process is there.
absl::StatusOr<std::shared_ptr<RankHost>> StartAgent(RemoteHostOptions options) {
  struct ConnectedHost {
    std::unique_ptr<RemoteHost> host;
    std::optional<HeartbeatSender> heartbeats;  // destroyed first
  };
  if (IsThisHost(options.name)) options.remote_shell.clear();
  const auto reached = std::make_shared<ConnectedHost>();
  GEMINID_ASSIGN_OR_RETURN(reached->host, RemoteHost::Start(std::move(options)));
  reached->heartbeats.emplace(std::vector<RemoteHost*>{reached->host.get()});
  return std::shared_ptr<RankHost>(reached, reached->host.get());
}

// How many ranks each host may have at most, of those that a run of `most` has.
std::map<std::string, int> MostByHost(const std::vector<HostSlots>& hosts, int most) {
  std::map<std::string, int> ranks;
  const auto taken = TakeSlots(hosts, std::min(most, SlotsOf(hosts)));
  for (const HostSlots& host : taken.value_or(hosts)) ranks[host.name] = host.ranks;
  return ranks;
}

// Of one launch of the run.
struct HostsEnd {
  LaunchedSoFar so_far;
  std::set<std::string> lost;  // hosts
};

absl::StatusOr<int> LaunchOnce(const RunOnHosts& run, const std::vector<HostSlots>& on,
                               const RemoteHostOptions& all, const LaunchOptions& launch,
                               HostsEnd* end) {
  HostList::Options options = {.hosts = on, .say = launch.write_stderr, .patience = kPatience};
  const std::map<std::string, int> most = MostByHost(on, std::max(launch.ranks, run.most_ranks));
  options.reach = [&](const HostSlots& host, const std::optional<MoveRequest>& joins) {
    RemoteHostOptions one = all;
    one.name = host.name;
    one.move = joins;
    const auto found = most.find(host.name);
    one.ranks_here = std::max(joins ? joins->ranks : 1, found == most.end() ? 1 : found->second);
    return StartAgent(std::move(one));
  };
  const sigset_t before = HoldBackStops();
  const absl::Cleanup restore = [&] { sigprocmask(SIG_SETMASK, &before, nullptr); };
  const auto hosts = std::make_shared<HostList>(std::move(options));
  GEMINID_RETURN_IF_ERROR(hosts->Connect(launch.ranks));
  LaunchOptions placed = launch;
  placed.host = hosts;
  const char* const port = std::getenv(kPortVariable);
  if (port != nullptr) placed.environment.emplace_back(kPortVariable, port);
  const absl::StatusOr<int> code = Launch(placed, &end->so_far);
  end->lost = hosts->lost();
  if (code.ok() || end->lost.empty()) return code;
  // Ranks that could not be started, for a host is gone.
  launch.write_stderr(absl::StrCat("geminid-train: ", std::string(code.status().message()), "\n"));
  return base::kExitUnavailable;
}

}  // namespace

absl::Status CheckNoOtherLauncher(const collectives::Environment& environment) {
  GEMINID_ASSIGN_OR_RETURN(const collectives::RankInfo info,
                           collectives::RankInfoFrom(environment));
  if (info.world_size == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--hosts starts the ranks itself, but this process is a rank of another launcher (torchrun, "
      "mpirun, srun); give --hosts to one process, or leave it out");
}

int RanksOnThoseLeft(const std::vector<HostSlots>& hosts, int ranks, const RanksFit& fits) {
  int fewer = std::min(ranks, SlotsOf(hosts));
  while (fewer > 0 && !fits(fewer)) --fewer;
  return fewer;
}

std::function<absl::StatusOr<std::shared_ptr<RankHost>>(const MoveRequest&)> ReachByShell(
    const RunOnHosts& run, const std::vector<std::string>& arguments) {
  return [run, arguments](const MoveRequest& move) -> absl::StatusOr<std::shared_ptr<RankHost>> {
    GEMINID_ASSIGN_OR_RETURN(RemoteHostOptions options, OptionsForAll(run, arguments));
    options.name = move.host;
    options.ranks = move.ranks;
    options.ranks_here = std::max(move.ranks, run.most_ranks);
    options.move = move;
    if (const char* const port = std::getenv(kPortVariable)) {
      options.environment.push_back(absl::StrCat(kPortVariable, "=", port));
    }
    HoldBackStops();  // Launch undoes it
    return StartAgent(std::move(options));
  };
}

absl::StatusOr<int> LaunchOnHosts(const RunOnHosts& run, const std::vector<std::string>& arguments,
                                  LaunchOptions launch, const RanksFit& fits) {
  GEMINID_ASSIGN_OR_RETURN(RemoteHostOptions all, OptionsForAll(run, arguments));
  std::vector<HostSlots> hosts = run.hosts;
  launch.ranks = run.ranks;
  launch.reach = ReachByShell(run, arguments);
  for (;;) {
    all.ranks = launch.ranks;
    HostsEnd end;
    GEMINID_ASSIGN_OR_RETURN(const int code, LaunchOnce(run, hosts, all, launch, &end));
    if (code != base::kExitUnavailable || end.lost.empty()) return code;
    std::erase_if(hosts, [&](const HostSlots& host) { return end.lost.contains(host.name); });
    launch.restarts_made = end.so_far.restarts_made;
    if (!run.resume || launch.restarts_made >= launch.restarts) return code;
    launch.ranks = RanksOnThoseLeft(hosts, end.so_far.ranks, fits);
    if (launch.ranks == 0) return code;
    ++launch.restarts_made;
    launch.write_stderr(absl::StrCat("geminid-train: starts again (", launch.restarts_made, " of ",
                                     launch.restarts, ") without ", absl::StrJoin(end.lost, ", "),
                                     ", with ", base::Counted(launch.ranks, "rank"),
                                     ", to go on from the newest checkpoint\n"));
    for (auto* words : {&all.arguments, &launch.arguments}) {
      *words = WithoutOptions(*words, {"--ranks"});
    }
  }
}

}  // namespace geminid::trainer
