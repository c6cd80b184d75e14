#include "tools/trainer/flags/run_flags.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/flag_values.h"
#include "base/status_macros.h"
#include "training/launch/host_file.h"
#include "training/launch/restarts.h"
#include "training/settings/flag_words.h"
#include "training/settings/outputs.h"

namespace geminid::trainer {
namespace {

constexpr double kTimeoutSecondsMax = 86'400;
constexpr double kQueueSecondsMax = 1e9;
constexpr uint64_t kPriorityMax = 100;
constexpr size_t kJobNameMax = 63;

constexpr FlagSpec kProcessFlags[] = {
    {"--ranks", &Flags::ranks, "N|MIN:MAX",
     "Processes to compute with; this program starts them. The daemon may choose from MIN to MAX"},
    {"--restarts", &Flags::restarts, "N",
     "Restarts of the ranks after one died; they go on from their state in memory"},
    {"--min-ranks", &Flags::min_ranks, "N",
     "After a death for which no restart is left, go on with fewer ranks, but at least N"},
    {"--max-ranks", &Flags::max_ranks, "N",
     "Most ranks that geminictl scale may give the run; the run's own daemon has room for them"},
    {"--threads", &Flags::threads, "N",
     "Threads of each rank; otherwise its share of the processors. The number does not change "
     "results"},
    {"--timeout", &Flags::timeout, "SECONDS",
     "How long to wait for another rank, and for the daemon, 10 at least; five times as long for a "
     "device that makes no progress"},
    {"--socket", &Flags::socket, "PATH",
     "The daemon's socket; otherwise $GEMINID_SOCKET, the installed daemon's, or that of a daemon "
     "for this run"},
    {"--job", &Flags::job, "NAME", "Name of the run's job at the daemon"},
    {"--priority", &Flags::priority, "N",
     "Priority of the job, -100 to 100, at most the tenant's; jobs of lower priority make room"},
    {"--queue-timeout", &Flags::queue_timeout, "SECONDS",
     "How long to wait for memory that other jobs have; 0: not at all"},
};
constexpr FlagSpec kHostsFlags[] = {
    {"--hosts", &Flags::hosts, "FILE",
     "Hosts to start the ranks on: lines [USER@]HOST slots=N, as for mpirun. Each has its own "
     "daemon"},
    {"--remote-shell", &Flags::remote_shell, "COMMAND",
     "Command that runs a line on one of the hosts, or on a host that the run moves to: it gets "
     "the host and a line for its shell"},
    {"--host-timeout", &Flags::host_timeout, "SECONDS",
     "Time without a message from a host after which the host is lost, and the run ends"},
};
constexpr FlagSpec kOutputFlags[] = {
    {"--report", &Flags::report, "PATH", "Write a JSON report to this file"},
    {"--weights-hash", &Flags::weights_hash, "WHEN",
     "When to write a hash of all weights into the report: end, unless a signal ends the run; "
     "always; or never"},
    {"--log", &Flags::log, "PATH", "Write a line of JSON to this file after each step"},
    {"--tensorboard", &Flags::tensorboard, "DIR",
     "Write the same values for TensorBoard in this folder"},
    {"--progress", &Flags::progress, "MODE", "auto, terminal, lines or none"},
    {"--update-threads", &Flags::update_threads, "N",
     "Threads of each rank for the optimizer's update"},
};
constexpr FlagSpec kCheckpointFlags[] = {
    {"--save", &Flags::save, "DIR", "Save checkpoints in this folder: at the end, and at a signal"},
    {"--save-every", &Flags::save_every, "N", "Save every N steps too, while training goes on"},
    {"--keep", &Flags::keep, "N", "Newest checkpoints to keep; 0: all"},
    {"--export", &Flags::export_to, "DIR",
     "After the last step, write the values as a new Hugging Face folder"},
    {"--export-dtype", &Flags::export_type, "TYPE",
     "Type of the exported tensors: fp32, bf16 or fp16; norms that were trained in fp32 stay fp32"},
};

absl::StatusOr<int> ParsePriority(const std::string& text) {
  const bool negative = !text.empty() && text[0] == '-';
  const absl::StatusOr<uint64_t> level =
      base::ParseCount("--priority", negative ? text.substr(1) : text, 0, kPriorityMax);
  if (level.ok()) return negative ? -static_cast<int>(*level) : static_cast<int>(*level);
  return absl::InvalidArgumentError(absl::StrCat(base::WithValue("--priority", text),
                                                 "it must be a whole number from -", kPriorityMax,
                                                 " to ", kPriorityMax));
}

absl::StatusOr<absl::Duration> ParseQueueTimeout(const std::string& text) {
  if (text == kUnlimited) return absl::InfiniteDuration();
  GEMINID_ASSIGN_OR_RETURN(const double seconds,
                           base::ParseReal("--queue-timeout", text, 0, kQueueSecondsMax));
  return absl::Seconds(seconds);
}

absl::Status ParseHosts(const Flags& flags, TrainOptions* options) {
  constexpr double kLeast = 1, kMost = 3600;
  GEMINID_ASSIGN_OR_RETURN(const double seconds,
                           base::ParseReal("--host-timeout", flags.host_timeout, kLeast, kMost));
  options->host_timeout = absl::Seconds(seconds);
  options->remote_shell = flags.remote_shell;
  if (flags.hosts.empty()) return absl::OkStatus();
  const auto hosts = ReadHostFile(flags.hosts);
  if (!hosts.ok()) return WithPath("--hosts", flags.hosts, hosts.status());
  options->hosts = *hosts;
  return absl::OkStatus();
}

absl::Status ParseRankLimit(const char* flag, const std::string& text, std::optional<int>* limit) {
  if (text.empty()) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(const uint64_t ranks, base::ParseCount(flag, text, 1, kRanksMax));
  *limit = static_cast<int>(ranks);
  return absl::OkStatus();
}

absl::Status ParseRanks(const std::string& text, TrainOptions* options) {
  if (text.empty()) return absl::OkStatus();
  const std::pair<std::string, std::string> range = absl::StrSplit(text, absl::MaxSplits(':', 1));
  GEMINID_RETURN_IF_ERROR(ParseRankLimit("--ranks", range.first, &options->ranks));
  std::optional<int> most;
  GEMINID_RETURN_IF_ERROR(ParseRankLimit("--ranks", range.second, &most));
  if (options->ranks && !most && text.find(':') == std::string::npos) return absl::OkStatus();
  if (!options->ranks || !most || *most <= *options->ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat(base::WithValue("--ranks", text),
                     "give a number, or the fewest and the most ranks that the daemon may choose, "
                     "as in 1:4"));
  }
  options->share = RanksRange{*options->ranks, *most};
  return absl::OkStatus();
}

absl::Status CheckJob(const std::string& job) {
  const bool characters = std::all_of(job.begin(), job.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
  if (characters && !job.empty() && job.size() <= kJobNameMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(base::WithValue("--job", job), "it must be 1 to ", kJobNameMax,
                   " of a-z, 0-9 and -"));
}

}  // namespace

std::span<const FlagSpec> ProcessFlags() { return kProcessFlags; }
std::span<const FlagSpec> HostsFlags() { return kHostsFlags; }
std::span<const FlagSpec> OutputFlags() { return kOutputFlags; }
std::span<const FlagSpec> CheckpointFlags() { return kCheckpointFlags; }

absl::Status CheckRanksAreFixed(const TrainOptions& options) {
  if (!options.share) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--ranks MIN:MAX is for training, which the daemon may change; give a number");
}

absl::Status ParseProcesses(const Flags& flags, TrainOptions* options) {
  GEMINID_RETURN_IF_ERROR(ParseRanks(flags.ranks, options));
  if (!flags.parallel.empty()) {
    const absl::StatusOr<Parallel> parallel = ParseParallel(flags.parallel);
    if (!parallel.ok()) {
      return WithPath("--parallel", flags.parallel, parallel.status());
    }
    options->parallel = *parallel;
    options->zero.stage = static_cast<zero::Stage>(options->parallel.zero);
  }
  GEMINID_ASSIGN_OR_RETURN(const uint64_t restarts,
                           base::ParseCount("--restarts", flags.restarts, 0, kRestartsMax));
  options->restarts = static_cast<int>(restarts);
  GEMINID_RETURN_IF_ERROR(ParseRankLimit("--min-ranks", flags.min_ranks, &options->min_ranks));
  GEMINID_RETURN_IF_ERROR(ParseRankLimit("--max-ranks", flags.max_ranks, &options->max_ranks));
  GEMINID_RETURN_IF_ERROR(ParseHosts(flags, options));
  if (options->share && !options->hosts.empty()) {
    return absl::InvalidArgumentError(
        "--ranks MIN:MAX is for ranks of one host, which one daemon shares; give --hosts a number");
  }
  if (!flags.threads.empty()) {
    GEMINID_ASSIGN_OR_RETURN(const uint64_t threads,
                             base::ParseCount("--threads", flags.threads, 1, kThreadsMax));
    options->threads = static_cast<int>(threads);
  }
  GEMINID_ASSIGN_OR_RETURN(const double seconds,
                           base::ParseReal("--timeout", flags.timeout, 1, kTimeoutSecondsMax));
  options->timeout = absl::Seconds(seconds);
  GEMINID_RETURN_IF_ERROR(CheckJob(flags.job));
  GEMINID_ASSIGN_OR_RETURN(options->priority, ParsePriority(flags.priority));
  GEMINID_ASSIGN_OR_RETURN(options->queue_timeout, ParseQueueTimeout(flags.queue_timeout));
  options->socket = flags.socket;
  options->job = flags.job;
  return absl::OkStatus();
}

absl::Status ParseOutput(const Flags& flags, TrainOptions* options) {
  options->report = flags.report;
  options->log = flags.log;
  options->tensorboard = WithoutSlashesAtEnd(flags.tensorboard);
  options->stop_on_nan = flags.stop_on_nan;
  GEMINID_ASSIGN_OR_RETURN(options->weights_hash,
                           base::ParseWord("--weights-hash", flags.weights_hash,
                                           std::array{std::pair{"end", WeightsHash::kUnlessStopped},
                                                      std::pair{"always", WeightsHash::kAlways},
                                                      std::pair{"never", WeightsHash::kNever}}));
  using Mode = std::optional<ProgressMode>;
  GEMINID_ASSIGN_OR_RETURN(
      options->progress,
      base::ParseWord("--progress", flags.progress,
                      std::array{std::pair{"auto", Mode()},
                                 std::pair{"terminal", Mode(ProgressMode::kTerminal)},
                                 std::pair{"lines", Mode(ProgressMode::kLines)},
                                 std::pair{"none", Mode(ProgressMode::kNone)}}));
  if (flags.quiet) options->progress = ProgressMode::kNone;
  return absl::OkStatus();
}

absl::Status ParseCheckpoints(const Flags& flags, TrainOptions* options) {
  constexpr uint64_t kMost = 1'000'000'000;  // a folder's name has digits for so many steps
  if (flags.resume && flags.save_over) {
    return absl::InvalidArgumentError(
        "--resume goes on from the checkpoints in --save DIR, --save-over replaces them; leave one "
        "out");
  }
  options->save = WithoutSlashesAtEnd(flags.save);
  options->load = WithoutSlashesAtEnd(flags.load);
  options->resume = flags.resume;
  options->save_over = flags.save_over;
  options->export_to = WithoutSlashesAtEnd(flags.export_to);
  using Type = checkpoint::ExportType;
  GEMINID_ASSIGN_OR_RETURN(options->export_type,
                           base::ParseWord("--export-dtype", flags.export_type,
                                           std::array{std::pair{"fp32", Type::kFloat32},
                                                      std::pair{"bf16", Type::kBFloat16},
                                                      std::pair{"fp16", Type::kFloat16}}));
  GEMINID_ASSIGN_OR_RETURN(options->keep, base::ParseCount("--keep", flags.keep, 0, kMost));
  if (flags.save_every.empty()) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(options->save_every,
                           base::ParseCount("--save-every", flags.save_every, 1, kMost));
  return absl::OkStatus();
}

}  // namespace geminid::trainer
