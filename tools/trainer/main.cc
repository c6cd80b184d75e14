// geminid-train: starts the ranks of a run, or is one of them.
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/bus_error.h"
#include "base/exit_status.h"
#include "base/max_isa.h"
#include "base/process_limits.h"
#include "base/processors.h"
#include "base/standard_streams.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"
#include "client/src/daemon_ended.h"
#include "client/src/job_scaling.h"
#include "client/zero/residency/diverged.h"
#include "geminid/rank_info.h"
#include "proto/shm/daemon_socket.h"
#include "tools/trainer/evaluate.h"
#include "tools/trainer/flags/command_line.h"
#include "tools/trainer/flags/data_flags.h"
#include "tools/trainer/flags/run_length.h"
#include "tools/trainer/generate.h"
#include "tools/trainer/train.h"
#include "training/engines/save_folder.h"
#include "training/launch/handover_memory.h"
#include "training/launch/host_agent.h"
#include "training/launch/launcher.h"
#include "training/launch/on_hosts.h"
#include "training/launch/outcome_teller.h"
#include "training/launch/rank_host.h"
#include "training/launch/rank_process.h"
#include "training/launch/restarts.h"
#include "training/launch/stop_signals.h"
#include "training/logs/phase.h"
#include "training/logs/terminal.h"
#include "training/ranks/daemon_choice.h"
#include "training/ranks/driver_watch.h"
#include "training/ranks/state_files.h"
#include "training/scaling/arrival.h"
#include "training/settings/options.h"
#include "training/settings/outputs.h"
#include "training/settings/rank_share.h"

namespace geminid::trainer {
namespace {

using shm::kSocketVariable;

void WriteStderr(const std::string& text) { base::WriteStandardError(text); }

// Set for ranks whose launcher has checked every token.
constexpr char kDataCheckedVariable[] = "GEMINID_DATA_CHECKED";

// Set for ranks whose daemon belongs to the run and has no configuration but the run's flags.
constexpr char kOwnDaemonVariable[] = "GEMINID_OWN_DAEMON";

// Rewrites the advice of libraries in this program's words. Under a launcher it drops the advice to
// restart: the launcher restarts the ranks, or says that it does not.
std::string InOwnWords(const std::string& words) {
  std::vector<std::pair<std::string, std::string>> changes;
  changes = {{"update after the step, where such", "give --update step, where such"}};
  if (IsLaunched()) changes.emplace_back("; start it again and connect a new communicator", "");
  if (std::getenv(kOwnDaemonVariable) != nullptr) {
    changes.insert(changes.end(),
                   {{"raise host_memory in the daemon's configuration", "give a larger --host-memory"},
                    {"raise the limits in the daemon's configuration", "give a larger --host-memory"}});
  }
  return absl::StrReplaceAll(words, changes);
}

void WriteError(const absl::Status& status) {
  const absl::Status whole = base::WithLimits(status);
  WriteStderr(absl::StrCat("geminid-train: ", InOwnWords(std::string(whole.message())), "\n"));
}

// Whether standard error is a terminal whose lines can be rewritten.
bool StderrIsTerminal() {
  const char* const term = std::getenv("TERM");
  return (term == nullptr || std::string_view(term) != "dumb") && isatty(STDERR_FILENO) == 1;
}

// The number of ranks and this one's number: from the environment if a launcher set them.
absl::StatusOr<collectives::RankInfo> FindRank(const TrainOptions& options) {
  GEMINID_ASSIGN_OR_RETURN(collectives::RankInfo info, collectives::FromEnvironment());
  if (info.world_size > 1 && options.ranks && *options.ranks != info.world_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--ranks is ", *options.ranks, ", but this process is one of ", info.world_size,
        " ranks of another launcher (torchrun, mpirun, srun); leave --ranks out, or start one "
        "geminid-train without that launcher"));
  }
  if (info.world_size > 1 && options.restarts > 0) {
    return absl::InvalidArgumentError(
        "--restarts is for ranks that this program starts itself; these have a launcher, which "
        "starts them again if it is told to (torchrun --max-restarts)");
  }
  const char* const flag = FlagOfOtherRanks(options);
  if (info.world_size > 1 && !IsLaunched() && flag != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag,
                     " is for ranks that this program starts itself; these have another launcher; "
                     "leave it out, or start one geminid-train without that launcher"));
  }
  return info;
}

absl::StatusOr<std::unique_ptr<StopSignals>> WatchSignals(const TrainOptions& options,
                                                          const collectives::RankInfo& info,
                                                          const Restarts& restarts) {
  StopSignals::Options watch;
  watch.second_is_parents = IsLaunched();
  watch.nothing_to_save = restarts.is_first();  // an earlier start may have left steps in memory
  if (info.rank == 0) {
    const bool line_is_open =
        options.progress ? *options.progress == ProgressMode::kTerminal : StderrIsTerminal();
    watch.write_stderr = [line_is_open](const std::string& text) {
      WriteStderr(line_is_open ? absl::StrCat("\n", text) : text);
    };
  }
  return StopSignals::Watch(std::move(watch));
}

int ExitCodeOf(const TrainEnd& end) {
  if (end.signal != 0) return base::kExitSignalBase + end.signal;
  if (end.spent) return base::ExitCodeOf(absl::StatusCode::kResourceExhausted);
  return end.diverged ? base::kExitDiverged : base::kExitOk;
}

// Tells the launcher, if it listens, that this process only has to exit.
std::function<void()> DoneSayer() {
  const char* const text = std::getenv(kDoneVariable);
  int fd = -1;
  if (!IsLaunched() || text == nullptr || !absl::SimpleAtoi(text, &fd) ||
      fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    return nullptr;
  }
  return [fd] { (void)!write(fd, "", 1); };  // ignores the error if the launcher has exited
}

// The most threads besides those that compute: for signals, the daemon, gRPC calls, copies,
// updates, saving and other ranks. Threads that compute are counted where they start.
constexpr size_t kOwnThreads = 24;

// The objects that this rank needs while it runs.
struct RankDependencies {
  std::unique_ptr<StopSignals> signals;
  std::unique_ptr<DriverWatch> watch;
  DaemonChoice daemon;
  RankContext context;
};

// Writes the text on a new line, in case a line of progress is open.
void WriteBehindLine(const std::string& text) {
  WriteStderr(StderrIsTerminal() ? absl::StrCat("\n", text) : text);
}

PhaseTeller::Write TellsOf(const TrainOptions& options, const collectives::RankInfo& info) {
  if (info.rank != 0 || options.progress == ProgressMode::kNone) return nullptr;
  return [](const std::string& line) { WriteStderr(line + "\n"); };
}

// If the options name no daemon, starts the run's own, which registers its memory when it starts.
absl::StatusOr<DaemonChoice> FindDaemon(const TrainOptions& options,
                                        const collectives::RankInfo& info, int ranks) {
  PhaseTeller teller(TellsOf(options, info));
  const InPhase phase(&teller, "starting the run's daemon");
  GEMINID_ASSIGN_OR_RETURN(DaemonChoice choice, ChooseDaemon(options, ranks, ranks));
  const std::string words = WithoutOtherJobs(choice, options);
  if (!words.empty() && info.rank == 0) WriteStderr(absl::StrCat("geminid-train: ", words, "\n"));
  return choice;
}

absl::Status Surround(const TrainOptions& options, const collectives::RankInfo& info,
                      RankDependencies* around) {
  if (info.world_size > 1) prctl(PR_SET_NAME, ShortRankName(info.rank).c_str());
  const auto environment = [](const char* name) -> const char* { return std::getenv(name); };
  GEMINID_ASSIGN_OR_RETURN(const Restarts restarts, RestartsFrom(environment));
  GEMINID_ASSIGN_OR_RETURN(HostSpread spread, HostSpread::From(environment));
  GEMINID_RETURN_IF_ERROR(base::ProbeThreads(kOwnThreads));
  GEMINID_ASSIGN_OR_RETURN(around->signals, WatchSignals(options, info, restarts));
  GEMINID_ASSIGN_OR_RETURN(around->daemon, FindDaemon(options, info, info.world_size));
  if (info.world_size > 1 && around->daemon.own != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ranks of a host share one daemon, but none is named: start geminid and "
                     "set ",
                     kSocketVariable, " or --socket, or start one geminid-train ",
                     options.ranks ? "without another launcher" : "with --ranks"));
  }
  if (around->daemon.own != nullptr) setenv(kOwnDaemonVariable, "1", 1);
  around->watch = std::make_unique<DriverWatch>(kStandstill * options.timeout, WriteBehindLine);
  around->context = {
      .info = info,
      .restarts = restarts,
      .run_memory = IsLaunched() ? RunMemory::From(environment) : RunMemory(),
      .is_launched = IsLaunched(),
      .handover = IsLaunched() ? HandoverMemory::From(environment) : nullptr,
      .spread = IsLaunched() ? std::move(spread) : HostSpread(),
      .check_ranks = [&options](int ranks) { return CheckShares(options, ranks); },
      .socket = around->daemon.socket,
      .write_stderr = WriteStderr,
      .stderr_is_terminal = StderrIsTerminal(),
      .terminal_width = TerminalColumns,
      .stop_signal =
          [around, before = restarts.signal_before] {
            const int first = around->signals->first();
            return first == 0 ? before : first;
          },
      .nothing_to_save = [around](bool nothing) { around->signals->SetNothingToSave(nothing); },
      .say_done = DoneSayer(),
      .on_failure = [around](const absl::Status& why) { around->watch->Ends(why); }};
  return absl::OkStatus();
}

// For a run that a signal ended while its job waited for memory, the signal's exit code.
absl::StatusOr<int> EndBeforeTheStart(const RankDependencies& around, const absl::Status& status) {
  const int first = around.signals->first();
  const int signal = first != 0 ? first : around.context.restarts.signal_before;
  // The signal may come from the launcher, after other ranks have heard that the job was ended.
  if (!absl::IsCancelled(status) || signal == 0 || IsJobEnded(status)) return status;
  if (around.context.info.rank == 0) WriteError(status);
  return base::kExitSignalBase + signal;
}

// The exit code of a run that met a gradient, or logits, that are not finite is that of a run which
// ends at such a loss: another start would meet them again.
absl::StatusOr<int> EndOfRank(const RankDependencies& around, const absl::Status& status) {
  if (!zero::HasDiverged(status)) return EndBeforeTheStart(around, status);
  WriteError(status);
  return base::kExitDiverged;
}

absl::StatusOr<int> TrainOneRank(const TrainOptions& options, const collectives::RankInfo& info,
                                 const TokenSource& data) {
  RankDependencies around;
  GEMINID_RETURN_IF_ERROR(Surround(options, info, &around));
  around.context.data = &data;
  const absl::StatusOr<TrainEnd> end = options.eval_only ? EvaluateAsRank(options, around.context)
                                                         : TrainAsRank(options, around.context);
  if (!end.ok()) return EndOfRank(around, end.status());
  return ExitCodeOf(*end);
}

absl::StatusOr<int> GenerateOnOneRank(const GenerateOptions& options,
                                      const collectives::RankInfo& info) {
  RankDependencies around;
  GEMINID_RETURN_IF_ERROR(Surround(options.run, info, &around));
  around.context.stop_signal = [&around] {
    const int first = around.signals->first();
    return first == 0 && !std::cout.good() ? SIGPIPE : first;
  };
  const absl::StatusOr<int> signal =
      GenerateAsRank(options, around.context, [](const std::string& text) {
        std::cout << text;
        return base::FinishOutput(std::cout);
      });
  if (!signal.ok()) return EndOfRank(around, signal.status());
  // A reader that has exited, as head(1) does, has read what it wanted.
  const bool all_is_well = *signal == 0 || *signal == SIGPIPE;
  return all_is_well ? static_cast<int>(base::kExitOk) : base::kExitSignalBase + *signal;
}

// Fills in all options except the ranks' hosts. `trains`: the ranks show their progress.
LaunchOptions LaunchOf(const TrainOptions& options, bool trains,
                       const std::vector<std::string>& arguments) {
  LaunchOptions launch;
  launch.restarts = trains ? options.restarts : 0;
  launch.hands_over = trains;
  launch.min_ranks = options.min_ranks.value_or(0);
  if (trains) launch.share = options.share;
  launch.fits = [&options](int ranks) { return CheckShares(options, ranks).ok(); };
  // The environment tells each rank how many ranks there are.
  launch.arguments = WithoutOptions(arguments, {"--host-memory", "--socket", "--restarts",
                                                "--ranks", "--min-ranks", "--max-ranks"});
  launch.arguments =
      WithoutOptions(launch.arguments, {std::begin(kHostsOptions), std::end(kHostsOptions)});
  if (trains && !options.progress && StderrIsTerminal()) {  // rank 0 writes into a pipe
    launch.arguments = WithoutOptions(launch.arguments, {"--progress"});
    launch.arguments.insert(launch.arguments.end(), {"--progress", "terminal"});
  }
  launch.write_stderr = WriteStderr;
  return launch;
}

absl::Status TellDaemon(const std::string& socket, const std::string& job,
                        const MoveOutcome& outcome) {
  constexpr absl::Duration kAnswer = absl::Seconds(1);
  return JobScaling(socket, kAnswer).Tell(job, {outcome.request, outcome.state, outcome.message});
}

absl::StatusOr<int> RunLauncher(const TrainOptions& options, bool trains,
                                const std::vector<std::string>& arguments) {
  const int ranks = RanksOf(options, 1);
  GEMINID_ASSIGN_OR_RETURN(const DaemonChoice daemon,
                           FindDaemon(options, {}, MostRanksOf(options, ranks)));
  LaunchOptions launch = LaunchOf(options, trains, arguments);
  launch.ranks = ranks;
  launch.environment_here = {{kSocketVariable, daemon.socket}, {kDataCheckedVariable, "1"}};
  if (daemon.own != nullptr) launch.environment_here.emplace_back(kOwnDaemonVariable, "1");
  OutcomeTeller teller(
      [&](const MoveOutcome& outcome) { return TellDaemon(daemon.socket, options.job, outcome); });
  if (trains) {
    RunOnHosts others;
    others.remote_shell = options.remote_shell;
    others.host_timeout = options.host_timeout;
    others.most_ranks = MostRanksOf(options, 1);
    launch.reach = ReachByShell(others, arguments);
    launch.check_here = [&](const MoveRequest& move) {
      return CheckRoomFor(options, move, daemon.socket);
    };
    launch.teller_here = &teller;
  }
  if (!options.zero.state_disk.folders.empty()) {
    launch.at_end = [&](const std::string& job_id, int of) {
      RemoveStateFiles(options, job_id, of);
    };
  }
  absl::StatusOr<int> code = Launch(launch);
  const bool failed = !code.ok() || (*code != base::kExitOk && *code < base::kExitSignalBase);
  if (const std::string complaints = failed ? ComplaintsOf(daemon) : ""; !complaints.empty()) {
    WriteStderr(absl::StrCat("From the log of its daemon:\n", complaints));
  }
  return code;
}

// Ranks of another launcher, or on other hosts, check a part of the data each.
absl::Status CheckTokens(const TrainOptions& options, const collectives::RankInfo& info,
                         const TokenSource& data, PhaseTeller* teller) {
  if (IsLaunched() && std::getenv(kDataCheckedVariable) != nullptr) return absl::OkStatus();
  const size_t here = info.local_world_size > 0 ? static_cast<size_t>(info.local_world_size) : 1;
  const size_t found = std::max<size_t>(1, base::AllowedProcessors().size() / here);
  std::atomic<uint64_t> looked_at = 0, all = 0;
  const InPhase phase(teller, "checking tokens", [&] {
    return PhaseProgress{.done = looked_at, .of = all, .unit = data.unit()};
  });
  return data.Check({.threads = options.threads ? static_cast<size_t>(*options.threads) : found,
                     .part = static_cast<uint64_t>(info.rank),
                     .parts = static_cast<uint64_t>(info.world_size),
                     .on_progress = [&](uint64_t done, uint64_t of) {
                       looked_at = done;
                       all = of;
                     }});
}

absl::StatusOr<std::unique_ptr<TokenSource>> OpenAndCheckData(const TrainOptions& options,
                                                              const collectives::RankInfo& info) {
  std::atomic<uint64_t> read = 0, all = 0;
  PhaseTeller teller(TellsOf(options, info));  // destroyed first: it reads the counters
  teller.Begin("reading the data", [&] { return PhaseProgress{.done = read, .of = all}; });
  GEMINID_ASSIGN_OR_RETURN(std::unique_ptr<TokenSource> data,
                           OpenData(options, [&](uint64_t done, uint64_t of) {
                             read = done;
                             all = of;
                           }));
  GEMINID_RETURN_IF_ERROR(
      SplitTokens(*data, options.validation_share, options.model.context).status());
  GEMINID_RETURN_IF_ERROR(WithStepsOf(options, *data).status());
  GEMINID_RETURN_IF_ERROR(CheckTokens(options, info, *data, &teller));
  return data;
}

// Each host finds data, exports and reports itself.
absl::StatusOr<int> TrainOnHosts(const TrainOptions& options,
                                 const std::vector<std::string>& arguments) {
  GEMINID_RETURN_IF_ERROR(
      CheckNoOtherLauncher([](const char* name) -> const char* { return std::getenv(name); }));
  // --ranks gives the number of ranks; without it, one rank per slot.
  const RunOnHosts run = {.hosts = options.hosts,
                          .remote_shell = options.remote_shell,
                          .host_timeout = options.host_timeout,
                          .ranks = options.ranks.value_or(SlotsOf(options.hosts)),
                          .most_ranks = options.max_ranks.value_or(0),
                          .resume = options.resume};
  GEMINID_RETURN_IF_ERROR(CheckShares(options, run.ranks));
  GEMINID_RETURN_IF_ERROR(CheckRankLimits(options, run.ranks));
  LaunchOptions launch = LaunchOf(options, /*trains=*/true, arguments);
  return LaunchOnHosts(run, arguments, std::move(launch),
                       [&](int ranks) { return CheckShares(options, ranks).ok(); });
}

// Checks for a run that is to come to this host what its first rank would need here, or for ranks
// that join it what they do.
absl::Status CheckFiles(TrainOptions options, const MoveRequest& move) {
  options.progress = ProgressMode::kNone;
  GEMINID_ASSIGN_OR_RETURN(const std::unique_ptr<TokenSource> data, OpenAndCheckData(options, {}));
  GEMINID_RETURN_IF_ERROR(CheckSameData(move, *data));
  return move.host.empty() ? absl::OkStatus() : CheckOutputs(options, /*exports=*/false);
}

// Standard input and output belong to the connection to the other end.
absl::StatusOr<int> RunAsHost() {
  HostAgentOptions agent;
  agent.in_fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  agent.out_fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const base::UniqueFd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  dup2(nothing.get(), STDIN_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  DaemonChoice daemon;
  std::string job;
  agent.prepare = [&](const HostTask& task) -> absl::StatusOr<HostReady> {
    GEMINID_ASSIGN_OR_RETURN(const CommandLine line, ParseCommandLine(task.arguments));
    if (!line.options) return absl::InvalidArgumentError("hosts are for training");
    job = line.options->job;
    HostReady ready;
    if (task.move) GEMINID_RETURN_IF_ERROR(CheckFiles(*line.options, *task.move));
    const int most = std::max(task.ranks, task.ranks_here);
    GEMINID_ASSIGN_OR_RETURN(daemon, ChooseDaemon(*line.options, most, task.ranks_here));
    ready.environment = {{kSocketVariable, daemon.socket}};
    if (daemon.own != nullptr) ready.environment.emplace_back(kOwnDaemonVariable, "1");
    if (!task.move) return ready;
    GEMINID_RETURN_IF_ERROR(CheckRoomFor(*line.options, *task.move, daemon.socket));
    ready.environment.emplace_back(kDataCheckedVariable, "1");
    ready.share = line.options->share;
    return ready;
  };
  OutcomeTeller teller(
      [&](const MoveOutcome& outcome) { return TellDaemon(daemon.socket, job, outcome); });
  agent.teller = &teller;
  GEMINID_RETURN_IF_ERROR(RunHostAgent(agent));
  return base::kExitOk;
}

absl::StatusOr<int> Train(const TrainOptions& options, const std::vector<std::string>& arguments) {
  if (!options.hosts.empty()) return TrainOnHosts(options, arguments);
  GEMINID_ASSIGN_OR_RETURN(const collectives::RankInfo info, FindRank(options));
  const int ranks = RanksOf(options, info.world_size);
  GEMINID_RETURN_IF_ERROR(CheckShares(options, ranks));
  GEMINID_ASSIGN_OR_RETURN(std::unique_ptr<TokenSource> data, OpenAndCheckData(options, info));
  GEMINID_ASSIGN_OR_RETURN(
      const Restarts restarts,
      RestartsFrom([](const char* name) -> const char* { return std::getenv(name); }));
  GEMINID_RETURN_IF_ERROR(CheckRankLimits(options, ranks));
  const bool needs_launcher = options.restarts > 0 || FlagOfOtherRanks(options) != nullptr;
  const bool trains = ranks == info.world_size && !needs_launcher;
  std::optional<FolderLock> lock;
  if (info.rank == 0) {
    // After a restart, an export that exists was made by an earlier start of this run.
    GEMINID_RETURN_IF_ERROR(CheckOutputs(options, /*exports=*/restarts.is_first()));
    const FolderClaim claim = !trains               ? FolderClaim::kCheck
                              : restarts.is_first() ? FolderClaim::kTake
                                                    : FolderClaim::kTakeAgain;
    GEMINID_ASSIGN_OR_RETURN(lock, TakeSaveFolder(options, claim, WriteStderr));
  }
  if (trains) return TrainOneRank(options, info, *data);
  lock.reset();  // rank 0 takes the lock
  data.reset();  // each rank loads its own data
  return RunLauncher(options, /*trains=*/true, arguments);
}

absl::StatusOr<int> Generate(const GenerateOptions& options,
                             const std::vector<std::string>& arguments) {
  GEMINID_ASSIGN_OR_RETURN(const collectives::RankInfo info, FindRank(options.run));
  const int ranks = RanksOf(options.run, info.world_size);
  if (ranks == info.world_size) return GenerateOnOneRank(options, info);
  return RunLauncher(options.run, /*trains=*/false, arguments);
}

absl::StatusOr<int> Run(const std::vector<std::string>& arguments) {
  GEMINID_ASSIGN_OR_RETURN(const CommandLine line, ParseCommandLine(arguments));
  const bool computes = line.is_host || line.options || line.generate;
  if (computes) GEMINID_RETURN_IF_ERROR(base::MaxIsa().status());
  for (const std::string& note : line.notes) {
    if (!IsLaunched()) WriteStderr(absl::StrCat("geminid-train: ", note, "\n"));
  }
  if (line.is_host) return RunAsHost();
  if (line.options) return Train(*line.options, arguments);
  if (line.generate) return Generate(*line.generate, arguments);
  std::cout << line.text;
  GEMINID_RETURN_IF_ERROR(base::FinishOutput(std::cout));
  return base::kExitOk;
}

}  // namespace
}  // namespace geminid::trainer

int main(int argc, char** argv) {
  geminid::base::PrepareStandardStreams();
  geminid::base::ExplainBusErrors("geminid-train");
  geminid::base::RaiseDescriptorLimit();
  const absl::StatusOr<int> code = geminid::trainer::Run({argv + 1, argv + argc});
  if (code.ok()) return *code;
  geminid::trainer::WriteError(code.status());
  return geminid::base::ExitCodeOf(code.status().code());
}
