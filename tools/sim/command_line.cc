#include "tools/sim/command_line.h"

#include <CLI/CLI.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/command_line.h"
#include "base/flag_values.h"
#include "base/status_macros.h"

namespace geminid::sim {
namespace {

constexpr uint64_t kMaxSteps = 10000;
constexpr uint64_t kMaxSeeds = 1000;
constexpr uint64_t kMaxTraces = 100000;
constexpr uint64_t kMaxElasticRanks = 1000;
constexpr uint64_t kMaxRuns = 100'000'000;
// With more deaths most runs never end.
constexpr double kMaxDeaths = 0.2;

// Texts as written; numbers are parsed below, because CLI11 takes "-1" for an unsigned number.
struct Flags {
  JobOptions job;
  std::string policy = "auto", steps = "3", warmup_steps = "1", seeds = "1", seed = "1";
  std::string ranks = "1", nodes = "1", batch, sequence = "1024", host_memory, device_memory;
  std::string copy_bandwidth, lookahead, traces = "200";
  std::string state = "host";
  std::string detect = "2", restart = "1";
  std::vector<std::string> set, kill_rank, kill_daemon;
  bool json = false;
  std::string timeline, memory_picture, title;
};

struct ElasticFlags {
  std::string ranks = "1000", runs = "1000", changes = "0.1", deaths, seed = "1";
  bool json = false;
};

absl::StatusOr<double> ParseSeconds(const std::string& what, const std::string& text) {
  return base::ParseReal(what, text, 0, 1e6);
}

void AddJobFlags(CLI::App* app, Flags* flags) {
  app->add_option("--trace", flags->job.trace, "Trace file, as geminictl trace save writes it");
  app->add_option("--random", flags->job.random, "KIND:SEED, a random trace");
  app->add_option("--model", flags->job.model, "A model of geminictl plan --list-models");
  app->add_option("--hardware", flags->job.hardware, "For --model: geminictl plan --list-hardware");
  app->add_option("--ranks", flags->ranks, "For --model: ranks of all nodes");
  app->add_option("--nodes", flags->nodes, "For --model");
  app->add_option("--batch", flags->batch, "For --model: sequences of a micro-batch, over all ranks; otherwise 4 of each");
  app->add_option("--context,--sequence", flags->sequence, "For --model: tokens of a sequence");
  app->add_option("--host-memory", flags->host_memory,
                  "Host memory of a node; none: as much as the job needs");
  app->add_option("--device-memory", flags->device_memory,
                  "Device memory of each rank, instead of the trace's");
  app->add_option(
      "--copy-bandwidth", flags->copy_bandwidth,
      "Rate of each direction of a rank's link, such as 10GB/s, instead of the trace's");
  app->add_option("--optimizer-state", flags->state,
                  "Where all state of a trace is: host, streamed (on the host, and updated by the "
                  "device) or disk");
  app->add_option("--set", flags->set, "Sets FIELD=NUMBER of the machine; may be repeated");
  app->add_option("--steps", flags->steps, "Steps to report");
  app->add_option("--warmup-steps", flags->warmup_steps, "Steps before those to report");
  app->add_option("--lookahead", flags->lookahead, "Most moments that a load may be early");
  app->add_flag("--json", flags->json, "Prints JSON");
}

void AddRunFlags(CLI::App* app, Flags* flags) {
  AddJobFlags(app, flags);
  app->add_option("--policy", flags->policy,
                  "auto, bytes, cpu, device, lru, gemini, static or static:FRACTION");
  app->add_option("--seeds", flags->seeds, "Runs with different noise");
  app->add_option("--seed", flags->seed, "First seed");
  app->add_option("--kill-rank", flags->kill_rank, "RANK@SECONDS; may be repeated");
  app->add_option("--kill-daemon", flags->kill_daemon, "NODE@SECONDS+SECONDS; may be repeated");
  app->add_option("--detect", flags->detect, "Seconds until a dead rank is noticed");
  app->add_option("--restart", flags->restart, "Seconds until its processes are up again");
  app->add_option("--timeline", flags->timeline, "Write a trace for Perfetto to this file");
  app->add_option("--memory-picture", flags->memory_picture, "Write an SVG to this file");
  app->add_option("--title", flags->title, "Title of the picture");
}

void AddElasticFlags(CLI::App* app, ElasticFlags* flags) {
  app->add_option("--ranks", flags->ranks, "Most ranks of a run");
  app->add_option("--runs", flags->runs, "Runs, each with a seed of its own");
  app->add_option("--changes", flags->changes,
                  "Chance in each step that a person asks for another number of ranks");
  app->add_option("--deaths", flags->deaths,
                  "Chance of a death at each point where a rank may die; otherwise each run draws "
                  "one, up to 0.06");
  app->add_option("--seed", flags->seed, "First seed");
  app->add_flag("--json", flags->json, "Prints JSON");
}

absl::StatusOr<CommandLine> ParseElastic(const ElasticFlags& flags) {
  CommandLine line;
  line.subcommand = Subcommand::kElastic;
  line.json = flags.json;
  ElasticOptions& options = line.elastic;
  GEMINID_ASSIGN_OR_RETURN(const uint64_t ranks,
                           base::ParseCount("--ranks", flags.ranks, 1, kMaxElasticRanks));
  options.settings.most_ranks = static_cast<int>(ranks);
  GEMINID_ASSIGN_OR_RETURN(options.runs, base::ParseCount("--runs", flags.runs, 1, kMaxRuns));
  GEMINID_ASSIGN_OR_RETURN(options.settings.change_chance,
                           base::ParseReal("--changes", flags.changes, 0, 1));
  if (!flags.deaths.empty()) {
    GEMINID_ASSIGN_OR_RETURN(options.settings.death_chance,
                             base::ParseReal("--deaths", flags.deaths, 0, kMaxDeaths));
  }
  GEMINID_ASSIGN_OR_RETURN(options.seed,
                           base::ParseCount("--seed", flags.seed, 0, ~uint64_t{0} >> 1));
  return line;
}

// Refuses a flag that would be ignored without, or with, another one.
absl::Status CheckFlagsCombine(const CLI::App& command) {
  const auto given = [&](const char* flag) {
    const CLI::Option* const option = command.get_option_no_throw(flag);
    return option != nullptr && option->count() > 0;
  };
  struct Pair {
    const char* flag;
    const char* other;
  };
  constexpr Pair kNeeding[] = {{"--optimizer-state", "--trace"}, {"--hardware", "--model"},
                               {"--model", "--hardware"},        {"--ranks", "--model"},
                               {"--nodes", "--model"},           {"--batch", "--model"},
                               {"--context", "--model"},         {"--title", "--memory-picture"}};
  for (const Pair& pair : kNeeding) {
    if (!given(pair.flag) || given(pair.other)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(pair.flag, " has no effect without ", pair.other, "; give both or neither"));
  }
  constexpr Pair kExcluding[] = {{"--trace", "--random"},  {"--trace", "--model"},
                                 {"--random", "--model"},  {"--traces", "--trace"},
                                 {"--traces", "--random"}, {"--traces", "--model"}};
  for (const Pair& pair : kExcluding) {
    if (!given(pair.flag) || !given(pair.other)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        pair.flag, " and ", pair.other, " do not go together: each says what is simulated"));
  }
  for (const char* flag : {"--detect", "--restart"}) {
    if (!given(flag) || given("--kill-rank") || given("--kill-daemon")) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " has no effect without --kill-rank or --kill-daemon"));
  }
  return absl::OkStatus();
}

// --batch is of all ranks, as in geminid-train; a job's batch is of one rank.
absl::Status ParseBatch(const Flags& flags, JobOptions* job) {
  if (flags.batch.empty()) return absl::OkStatus();
  constexpr uint64_t kMost = uint64_t{1} << 40;
  GEMINID_ASSIGN_OR_RETURN(const uint64_t all, base::ParseCount("--batch", flags.batch, 1, kMost));
  job->batch = all / job->ranks;
  if (all % job->ranks == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--batch is ", all,
                   "; it counts the sequences of all ranks, and must be a multiple of their "
                   "number, ",
                   job->ranks));
}

absl::StatusOr<StateTier> ParseState(const std::string& text) {
  if (text == "host") return StateTier::kHost;
  if (text == "streamed") return StateTier::kStreamed;
  if (text == "disk") return StateTier::kDisk;
  return absl::InvalidArgumentError(absl::StrCat(base::WithValue("--optimizer-state", text),
                                                 "it must be host, streamed or disk"));
}

absl::Status ParseJob(const Flags& flags, Subcommand subcommand, JobOptions* job) {
  *job = flags.job;
  constexpr uint64_t kMany = uint64_t{1} << 20;
  GEMINID_ASSIGN_OR_RETURN(job->ranks, base::ParseCount("--ranks", flags.ranks, 1, kMany));
  GEMINID_ASSIGN_OR_RETURN(job->nodes, base::ParseCount("--nodes", flags.nodes, 1, kMany));
  GEMINID_RETURN_IF_ERROR(ParseBatch(flags, job));
  GEMINID_ASSIGN_OR_RETURN(job->sequence, base::ParseCount("--context", flags.sequence, 1, kMany));
  if (!flags.host_memory.empty()) {
    GEMINID_ASSIGN_OR_RETURN(job->host_bytes, base::ParseMemory("--host-memory", flags.host_memory));
  }
  if (!flags.device_memory.empty()) {
    GEMINID_ASSIGN_OR_RETURN(job->device_bytes, base::ParseMemory("--device-memory", flags.device_memory));
  }
  if (!flags.copy_bandwidth.empty()) {
    GEMINID_ASSIGN_OR_RETURN(const uint64_t speed,
                             base::ParseBandwidth("--copy-bandwidth", flags.copy_bandwidth));
    if (speed == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(base::WithValue("--copy-bandwidth", flags.copy_bandwidth),
                       "nothing would move; give a size per second, as in 10GB/s"));
    }
    job->link_bytes_per_second = static_cast<double>(speed);
  }
  GEMINID_ASSIGN_OR_RETURN(job->state, ParseState(flags.state));
  for (const std::string& text : flags.set) {
    const size_t equals = text.find('=');
    double value = 0;
    if (equals == std::string::npos || !absl::SimpleAtod(text.substr(equals + 1), &value)) {
      return absl::InvalidArgumentError(
          absl::StrCat(base::WithValue("--set", text), "it must be FIELD=NUMBER"));
    }
    job->fields.emplace_back(text.substr(0, equals), value);
  }
  const bool no_job = job->trace.empty() && job->random.empty() && job->model.empty();
  if (no_job && subcommand == Subcommand::kRun) {
    return absl::InvalidArgumentError("give one of --trace, --random and --model");
  }
  return absl::OkStatus();
}

absl::Status ParseSimulation(const Flags& flags, CommandLine* line) {
  GEMINID_ASSIGN_OR_RETURN(line->policy, ParsePolicy(flags.policy));
  SimulationOptions& options = line->simulation;
  GEMINID_ASSIGN_OR_RETURN(options.steps, base::ParseCount("--steps", flags.steps, 1, kMaxSteps));
  GEMINID_ASSIGN_OR_RETURN(options.warmup_steps,
                           base::ParseCount("--warmup-steps", flags.warmup_steps, 1, kMaxSteps));
  GEMINID_ASSIGN_OR_RETURN(options.seed,
                           base::ParseCount("--seed", flags.seed, 0, ~uint64_t{0} >> 1));
  GEMINID_ASSIGN_OR_RETURN(line->seeds, base::ParseCount("--seeds", flags.seeds, 1, kMaxSeeds));
  GEMINID_ASSIGN_OR_RETURN(line->traces, base::ParseCount("--traces", flags.traces, 1, kMaxTraces));
  if (!flags.lookahead.empty()) {
    GEMINID_ASSIGN_OR_RETURN(line->lookahead_moments,
                             base::ParseCount("--lookahead", flags.lookahead, 0, kMaxSteps));
  }
  GEMINID_ASSIGN_OR_RETURN(options.recovery.detect_seconds, ParseSeconds("--detect", flags.detect));
  GEMINID_ASSIGN_OR_RETURN(options.recovery.restart_seconds,
                           ParseSeconds("--restart", flags.restart));
  for (const std::string& text : flags.kill_rank) {
    GEMINID_ASSIGN_OR_RETURN(Failure failure, ParseFailure(FailureKind::kRank, text));
    options.failures.push_back(failure);
  }
  for (const std::string& text : flags.kill_daemon) {
    GEMINID_ASSIGN_OR_RETURN(Failure failure, ParseFailure(FailureKind::kDaemon, text));
    options.failures.push_back(failure);
  }
  options.keeps_events = !flags.timeline.empty();
  line->json = flags.json;
  line->timeline = flags.timeline;
  line->memory_picture = flags.memory_picture;
  line->title = flags.title;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Failure> ParseFailure(FailureKind kind, const std::string& text) {
  Failure failure;
  failure.kind = kind;
  const size_t at = text.find('@');
  const size_t plus = text.find('+', at == std::string::npos ? 0 : at);
  const bool is_daemon = kind == FailureKind::kDaemon;
  if (at == std::string::npos || (plus != std::string::npos) != is_daemon) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not a failure; give ",
                     is_daemon ? "NODE@SECONDS+SECONDS" : "RANK@SECONDS"));
  }
  GEMINID_ASSIGN_OR_RETURN(const uint64_t index,
                           base::ParseCount("the number before @", text.substr(0, at), 0, 1 << 20));
  failure.index = static_cast<int>(index);
  GEMINID_ASSIGN_OR_RETURN(failure.at_seconds,
                           ParseSeconds("the time after @", text.substr(at + 1, plus - at - 1)));
  if (!is_daemon) return failure;
  GEMINID_ASSIGN_OR_RETURN(failure.outage_seconds,
                           ParseSeconds("the time after +", text.substr(plus + 1)));
  return failure;
}

absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments) {
  CLI::App app("Simulates training: the planner, the daemon and its clients in simulated time.",
               "geminid-sim");
  app.set_version_flag("--version", absl::StrCat("geminid-sim ", GEMINID_VERSION));
  app.require_subcommand(1);
  Flags flags;
  CLI::App* run = app.add_subcommand("run", "One policy on one job");
  AddRunFlags(run, &flags);
  CLI::App* compare = app.add_subcommand(
      "compare", "All policies on one job, or, without a job, on many random traces");
  AddJobFlags(compare, &flags);
  compare->add_option("--traces", flags.traces, "Random traces of each kind");
  compare->add_option("--seed", flags.seed, "First seed");
  ElasticFlags elastic_flags;
  CLI::App* elastic = app.add_subcommand("elastic", "Runs whose ranks join, leave and die");
  AddElasticFlags(elastic, &elastic_flags);
  base::RefuseEmptyValues(&app);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // the last first
  } catch (const CLI::CallForVersion& version) {
    CommandLine answer;
    answer.text = absl::StrCat(version.what(), "\n");
    return answer;
  } catch (const CLI::CallForHelp& asked) {
    if (base::HasUnknownWords(app)) {
      return absl::InvalidArgumentError(base::DescribeParseError(app, asked));
    }
    CommandLine help;
    const std::vector<CLI::App*> chosen = app.get_subcommands();
    help.text = chosen.empty() ? app.help() : chosen.front()->help();
    return help;
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(base::DescribeParseError(app, error));
  }
  if (*elastic) return ParseElastic(elastic_flags);
  CommandLine line;
  line.subcommand = *run ? Subcommand::kRun : Subcommand::kCompare;
  GEMINID_RETURN_IF_ERROR(CheckFlagsCombine(*app.get_subcommands().front()));
  GEMINID_RETURN_IF_ERROR(ParseJob(flags, *line.subcommand, &line.job));
  GEMINID_RETURN_IF_ERROR(ParseSimulation(flags, &line));
  return line;
}

}  // namespace geminid::sim
