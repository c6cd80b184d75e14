#include "tools/geminictl/program/command_line.h"

#include <CLI/CLI.hpp>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/command_line.h"
#include "base/flag_values.h"
#include "base/status_macros.h"
#include "daemon/planner/sharing/node_job.h"
#include "tools/geminictl/commands/version.h"

namespace geminid::ctl {
namespace {

constexpr double kSecondsMin = 0.1;
constexpr double kSecondsMax = 3600;
constexpr double kSecondsToWaitMax = 30 * 86400.0;   // for a job, which may take weeks
constexpr uint64_t kMostChunks = uint64_t{1} << 24;  // as many as a daemon can have

// The flags as text. Numbers are parsed here and not by CLI11, which takes "-1" for an unsigned
// number.
struct Flags {
  std::string timeout = "10", interval = "2", sort = "stall", session, limit = "1000", chunk,
              wait_at_most, at_most = "60", ranks, watch, times;
  // A host has 60 s to become ready (RunPlace::Options::patience) before the state travels.
  std::string move_at_most = "180";
};

// Subcommands that look once and change nothing.
bool MayBeWatched(Subcommand subcommand) {
  switch (subcommand) {
    case Subcommand::kStatus:
    case Subcommand::kListSessions:
    case Subcommand::kListChunks:
    case Subcommand::kListPools:
    case Subcommand::kListJobs:
    case Subcommand::kExplain:
    case Subcommand::kDoctor:
    case Subcommand::kConfigShow:
      return true;
    default:
      return false;
  }
}

absl::StatusOr<absl::Duration> ParseSeconds(const std::string& flag, const std::string& text,
                                            double most = kSecondsMax) {
  GEMINID_ASSIGN_OR_RETURN(const double seconds, base::ParseReal(flag, text, kSecondsMin, most));
  return absl::Seconds(seconds);
}
absl::StatusOr<absl::Duration> ParseSecondsToWait(const std::string& flag,
                                                  const std::string& text) {
  return ParseSeconds(flag, text, kSecondsToWaitMax);
}

absl::Status ParseWatch(const Flags& flags, CommandLine* line) {
  if (!flags.times.empty()) {
    GEMINID_ASSIGN_OR_RETURN(line->watch.times, base::ParseCount("--times", flags.times, 1,
                                                                 std::numeric_limits<int>::max()));
  }
  if (flags.watch.empty()) {
    if (flags.times.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--times is the number of repetitions of --watch; give --watch, too");
  }
  if (!MayBeWatched(*line->subcommand)) {
    return absl::InvalidArgumentError(
        "--watch is for status, ls, explain, doctor and config show; top is live by itself");
  }
  GEMINID_ASSIGN_OR_RETURN(line->watch.interval, ParseSeconds("--watch", flags.watch));
  return absl::OkStatus();
}

absl::Status ParseWait(const Flags& flags, CommandLine* line) {
  GEMINID_ASSIGN_OR_RETURN(line->wait.at_most, ParseSecondsToWait("--at-most", flags.at_most));
  return line->subcommand == Subcommand::kWaitJob ? CheckJobState(line->wait.state)
                                                  : absl::OkStatus();
}

absl::Status CheckExport(const TraceOptions& trace) {
  if (trace.perfetto.empty() && trace.svg.empty()) {
    return absl::InvalidArgumentError("trace export writes files: give --perfetto, --svg or both");
  }
  if (trace.file.empty() || trace.session.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("trace export takes a session or a --file, not both");
}

absl::Status ParseFlags(const Flags& flags, CommandLine* line) {
  GEMINID_ASSIGN_OR_RETURN(line->timeout, ParseSeconds("--timeout", flags.timeout));
  GEMINID_ASSIGN_OR_RETURN(line->top.interval, ParseSeconds("--interval", flags.interval));
  if (flags.sort != "stall" && flags.sort != "bytes") {
    return absl::InvalidArgumentError(
        absl::StrCat(base::WithValue("--sort", flags.sort), "it must be one of: stall, bytes"));
  }
  line->top.order = flags.sort == "stall" ? TopOrder::kStall : TopOrder::kBytes;
  if (!flags.session.empty()) {
    GEMINID_ASSIGN_OR_RETURN(
        line->chunks.session,
        base::ParseCount("--session", flags.session, 1, std::numeric_limits<uint64_t>::max()));
  }
  GEMINID_ASSIGN_OR_RETURN(const uint64_t limit,
                           base::ParseCount("--limit", flags.limit, 1, kMostChunks));
  line->chunks.limit = static_cast<uint32_t>(limit);
  if (!flags.wait_at_most.empty()) {
    GEMINID_ASSIGN_OR_RETURN(line->jobs.wait_at_most,
                             ParseSecondsToWait("--wait-at-most", flags.wait_at_most));
    line->jobs.wait = true;
  }
  const bool migrates = line->subcommand == Subcommand::kMigrate;
  if (migrates && line->jobs.host.empty()) {
    return absl::InvalidArgumentError("migrate needs a host to go to: HOST or USER@HOST");
  }
  if (migrates || line->subcommand == Subcommand::kScale) {
    uint64_t ranks = 0;
    if (flags.ranks != (migrates ? "" : "auto")) {
      GEMINID_ASSIGN_OR_RETURN(
          ranks, base::ParseCount("the number of ranks", flags.ranks, 1, planner::kMostRanksOfJob));
    }
    line->jobs.ranks = static_cast<uint32_t>(ranks);
    GEMINID_ASSIGN_OR_RETURN(
        line->jobs.wait_at_most,
        ParseSecondsToWait("--at-most", migrates ? flags.move_at_most : flags.at_most));
  }
  if (line->subcommand == Subcommand::kExplain) {
    GEMINID_ASSIGN_OR_RETURN(line->chunk, ParseChunkName(flags.chunk));
  }
  if (line->subcommand == Subcommand::kTraceExport) {
    GEMINID_RETURN_IF_ERROR(CheckExport(line->trace));
  }
  GEMINID_RETURN_IF_ERROR(ParseWait(flags, line));
  return ParseWatch(flags, line);
}

class Parser {
 public:
  Parser()
      : app_(
            "Looks at the geminid daemon of this machine. drain, evict, scale, migrate and end "
            "change something.",
            "geminictl") {
    app_.set_version_flag("--version", VersionLine());
    app_.require_subcommand(1);
    app_.add_option("--socket", line_.socket,
                    "The daemon's gRPC socket; otherwise $GEMINID_SOCKET, or "
                    "/run/geminid/geminid.sock");
    app_.add_flag("--json", line_.json, "JSON with raw bytes and seconds");
    app_.add_flag("--no-color", line_.no_color,
                  "No colour; NO_COLOR in the environment is the same");
    app_.add_option("--timeout", flags_.timeout, "Seconds to wait for each answer")
        ->capture_default_str();
    app_.add_option(
        "--watch", flags_.watch,
        "Repeats the command every so many seconds: status, ls, explain, doctor, config show");
    app_.add_option("--times", flags_.times,
                    "Number of repetitions of --watch; otherwise until q or Ctrl-C");
    Add(&app_, "status",
        "Shows the memory that the daemon hands out, and whether the ledger adds up",
        Subcommand::kStatus);
    AddTop();
    AddList();
    AddJobs();
    Add(&app_, "explain", "Says where a chunk is, why, and what would evict it",
        Subcommand::kExplain)
        ->add_option("chunk", flags_.chunk, "SESSION/CHUNK, or CHUNK where there is one session")
        ->required();
    Add(&app_, "doctor",
        "Checks what this machine has and lacks, and names the fix; needs no daemon",
        Subcommand::kDoctor);
    CLI::App* const config = Group("config", "The daemon's configuration");
    Add(config, "show", "Shows the values in force", Subcommand::kConfigShow)
        ->add_flag("--origin", line_.origin,
                   "Also shows where each value comes from, as JSON always does");
    AddPlanFlags(Add(&app_, "plan",
                     "Says whether a model fits, how fast it trains, and what would make it fit; "
                     "needs no daemon",
                     Subcommand::kPlan),
                 &line_.plan);
    AddTrace();
    AddWait();
    AddBundle();
    Add(&app_, "schema", "Prints the JSON Schema of the output of --json; needs no daemon",
        Subcommand::kSchema);
    Add(&app_, "version", "Prints the version of this program", Subcommand::kVersion);
    base::RefuseEmptyValues(&app_);
  }

  absl::StatusOr<CommandLine> Parse(const std::vector<std::string>& arguments) {
    try {
      app_.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // last first
    } catch (const CLI::CallForVersion& version) {
      line_.text = absl::StrCat(version.what(), "\n");
    } catch (const CLI::CallForHelp& asked) {
      if (base::HasUnknownWords(app_)) {
        return absl::InvalidArgumentError(base::DescribeParseError(app_, asked));
      }
      line_.text = app_.help();
    } catch (const CLI::Error& error) {
      return absl::InvalidArgumentError(base::DescribeParseError(app_, error));
    }
    if (!line_.text.empty()) {
      line_.subcommand.reset();
      return line_;
    }
    GEMINID_RETURN_IF_ERROR(ParseFlags(flags_, &line_));
    return line_;
  }

 private:
  // A subcommand that takes the common flags after its name too.
  CLI::App* Add(CLI::App* parent, const char* name, const char* help, Subcommand subcommand) {
    CLI::App* const app = parent->add_subcommand(name, help);
    app->fallthrough();
    app->final_callback([this, subcommand] { line_.subcommand = subcommand; });
    return app;
  }

  CLI::App* Group(const char* name, const char* help) {
    CLI::App* const app = app_.add_subcommand(name, help);
    app->fallthrough();
    app->require_subcommand(1);
    return app;
  }

  void AddTop() {
    CLI::App* const top = Add(&app_, "top",
                              "Shows memory and ranks, live; q quits, s and b sort by stall and "
                              "bytes. Without a terminal it prints one reading",
                              Subcommand::kTop);
    top->add_flag("--once", line_.top.once, "One reading");
    top->add_option("--interval", flags_.interval, "Seconds between readings")
        ->capture_default_str();
    top->add_option("--sort", flags_.sort, "stall or bytes")->capture_default_str();
    top->add_flag("--ascii", line_.top.ascii, "Draw with ASCII only");
  }

  void AddList() {
    CLI::App* const list = Group("ls", "Lists jobs, sessions, chunks or pools");
    Add(list, "jobs", "Jobs that run, jobs that wait and why, and the memory of each",
        Subcommand::kListJobs);
    Add(list, "sessions", "Attached processes, and dead ones whose memory is kept",
        Subcommand::kListSessions);
    CLI::App* const chunks = Add(list, "chunks", "Chunks", Subcommand::kListChunks);
    chunks->add_option("--session", flags_.session, "Only chunks of this session");
    chunks->add_option("--limit", flags_.limit, "Most chunks to list")->capture_default_str();
    Add(list, "pools", "Host pools and device arenas", Subcommand::kListPools);
  }

  void AddJobs() {
    const auto waits = [this](CLI::App* app, const char* help) {
      app->add_flag("--wait", line_.jobs.wait, help);
      app->add_option("--wait-at-most", flags_.wait_at_most,
                      "Waits like --wait, at most so many seconds");
    };
    const auto names = [this](CLI::App* app) {
      app->add_option("job", line_.jobs.job, "Name of the job")->required();
      app->add_option("--tenant", line_.jobs.tenant,
                      "Tenant of the job, such as uid:1000; otherwise your own");
    };
    CLI::App* const drain =
        Add(&app_, "drain", "Admits no new jobs; those that run go on", Subcommand::kDrain);
    drain->add_flag("--undo", line_.jobs.undo, "Admits jobs again");
    waits(drain, "Waits until no job is left");
    CLI::App* const evict =
        Add(&app_, "evict", "Moves a job from its device to host memory, after its current step",
            Subcommand::kEvict);
    names(evict);
    evict->add_flag("--undo", line_.jobs.undo, "Lets the job go on");
    waits(evict, "Waits until the job has left the device");
    CLI::App* const scale =
        Add(&app_, "scale", "Changes the number of ranks of a job of geminid-train",
            Subcommand::kScale);
    names(scale);
    scale
        ->add_option("ranks", flags_.ranks,
                     "New number of ranks, on the job's host or on the slots of its --hosts; auto: "
                     "the daemon chooses again")
        ->required();
    scale
        ->add_option("--at-most", flags_.at_most,
                     "Seconds to wait for the change; then the exit code is 6")
        ->capture_default_str();
    CLI::App* const migrate = Add(
        &app_, "migrate",
        "Moves a job of geminid-train to another host's daemon, without a checkpoint. The process "
        "that started the job stays where it is, and reaches that host by its --remote-shell",
        Subcommand::kMigrate);
    names(migrate);
    migrate
        ->add_option("host", line_.jobs.host,
                     "HOST or USER@HOST, as that process names the host; localhost: its own host")
        ->required();
    migrate->add_option("--ranks", flags_.ranks,
                        "Number of ranks there; otherwise the job's present number");
    migrate
        ->add_option("--at-most", flags_.move_at_most,
                     "Seconds to wait for the change; then the exit code is 6")
        ->capture_default_str();
    CLI::App* const end =
        Add(&app_, "end", "Ends a job and frees all its memory, kept memory too", Subcommand::kEnd);
    names(end);
    end->add_flag("--yes", line_.jobs.yes, "Does not ask for confirmation");
  }

  void AddTrace() {
    CLI::App* const trace = Group("trace", "Saves and shows traces, from which plans are made");
    CLI::App* const save =
        Add(trace, "save", "Saves a session's trace, for 'plan --trace' and the simulator",
            Subcommand::kTraceSave);
    save->add_option("session", line_.trace.session,
                     "SESSION or JOB/RANK, where there are several");
    save->add_option("-o,--output", line_.trace.file, "FILE.json, .textproto or .pb")->required();
    Add(trace, "show", "Shows the contents of a saved trace; needs no daemon",
        Subcommand::kTraceShow)
        ->add_option("file", line_.trace.file, "File of a saved trace")
        ->required();
    CLI::App* const out = Add(
        trace, "export", "Exports one simulated step with its plan: for Perfetto, and as a picture",
        Subcommand::kTraceExport);
    out->add_option("session", line_.trace.session, "SESSION or JOB/RANK, where there are several");
    out->add_option("--file", line_.trace.file,
                    "A saved trace in place of a session's; needs no daemon");
    out->add_option("--perfetto", line_.trace.perfetto,
                    "Write this file, for ui.perfetto.dev or chrome://tracing");
    out->add_option("--svg", line_.trace.svg, "Write this picture");
  }

  void AddWait() {
    CLI::App* const wait =
        Group("wait", "Waits for a state of the daemon or of a job, at most --at-most");
    CLI::App* const daemon =
        Add(wait, "daemon", "Until the daemon serves and admits new jobs", Subcommand::kWaitDaemon);
    CLI::App* const job = Add(wait, "job", "Until a job is in a state", Subcommand::kWaitJob);
    job->add_option("job", line_.wait.job, "Name of the job")->required();
    job->add_option("--for", line_.wait.state,
                    "gathering, queued, running, yielding, preempted, kept or gone")
        ->required();
    job->add_option("--tenant", line_.wait.tenant,
                    "Tenant of the job, such as uid:1000; otherwise any tenant");
    for (CLI::App* const app : {daemon, job}) {
      app->add_option("--at-most", flags_.at_most, "Seconds to wait; then the exit code is 6")
          ->capture_default_str();
    }
  }

  void AddBundle() {
    CLI::App* const bundle =
        Add(&app_, "bundle", "Collects what helps to find a fault, without secrets, in one file",
            Subcommand::kBundle);
    bundle->add_option("-o,--output", line_.bundle.output,
                       "FILE.tar.gz; otherwise geminid-bundle-TIME.tar.gz here");
    bundle->add_option("--log", line_.bundle.log,
                       "A log of the daemon; its end goes into the file");
  }

  CLI::App app_;
  Flags flags_;
  CommandLine line_;
};

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments) {
  return Parser().Parse(arguments);
}

}  // namespace geminid::ctl
