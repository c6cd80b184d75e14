#include "tools/geminictl/program/run.h"

#include "base/exit_status.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "proto/shm/daemon_socket.h"
#include "tools/geminictl/commands/config_show.h"
#include "tools/geminictl/commands/explain.h"
#include "tools/geminictl/commands/jobs.h"
#include "tools/geminictl/commands/list.h"
#include "tools/geminictl/commands/schema.h"
#include "tools/geminictl/commands/status.h"
#include "tools/geminictl/commands/trace.h"
#include "tools/geminictl/commands/version.h"
#include "tools/geminictl/doctor/doctor.h"
#include "tools/geminictl/plan/plan.h"
#include "tools/geminictl/program/command_line.h"
#include "tools/geminictl/screen/top.h"

namespace geminid::ctl {
namespace {

std::string ChooseSocket(const CommandLine& line, const Variables& variables) {
  if (!line.socket.empty()) return line.socket;
  const std::string from_environment = variables(shm::kSocketVariable).value_or("");
  return from_environment.empty() ? shm::kInstalledSocket : from_environment;
}

absl::StatusOr<int> Dispatch(const CommandLine& line, const Context& context) {
  switch (*line.subcommand) {
    case Subcommand::kStatus:
      return RunStatus(context);
    case Subcommand::kTop:
      return RunTop(context, line.top);
    case Subcommand::kListSessions:
      return RunListSessions(context);
    case Subcommand::kListChunks:
      return RunListChunks(context, line.chunks);
    case Subcommand::kListPools:
      return RunListPools(context);
    case Subcommand::kListJobs:
      return RunListJobs(context);
    case Subcommand::kDrain:
      return RunDrain(context, line.jobs);
    case Subcommand::kEvict:
      return RunEvict(context, line.jobs);
    case Subcommand::kScale:
    case Subcommand::kMigrate:
      return RunScale(context, line.jobs);
    case Subcommand::kEnd:
      return RunEnd(context, line.jobs);
    case Subcommand::kExplain:
      return RunExplain(context, line.chunk);
    case Subcommand::kDoctor:
      return RunDoctor(context);
    case Subcommand::kConfigShow:
      return RunConfigShow(context, line.origin);
    case Subcommand::kPlan:
      return RunPlan(context, line.plan);
    case Subcommand::kTraceSave:
      return RunTraceSave(context, line.trace);
    case Subcommand::kTraceShow:
      return RunTraceShow(context, line.trace);
    case Subcommand::kTraceExport:
      return RunTraceExport(context, line.trace);
    case Subcommand::kWaitDaemon:
      return RunWaitDaemon(context, line.wait);
    case Subcommand::kWaitJob:
      return RunWaitJob(context, line.wait);
    case Subcommand::kBundle:
      return RunBundle(context, line.bundle);
    case Subcommand::kSchema:
      return RunSchema(context);
    case Subcommand::kVersion:
      return RunVersion(context);
  }
  return absl::InternalError("a subcommand without an implementation");
}

absl::StatusOr<int> ParseAndDispatch(const std::vector<std::string>& arguments,
                                     const Environment& environment) {
  GEMINID_ASSIGN_OR_RETURN(const CommandLine line, ParseCommandLine(arguments));
  if (!line.subcommand.has_value()) {
    *environment.out << line.text;
    return base::kExitOk;
  }
  Context context;
  context.out = environment.out;
  context.err = environment.err;
  context.socket = ChooseSocket(line, environment.variables);
  context.timeout = line.timeout;
  context.json = line.json;
  context.style = ChooseStyle(environment.out_is_terminal, line.no_color, environment.variables);
  context.interactive = environment.in_is_terminal && context.style.terminal;
  return Watch(context, line.watch,
               [&line](const Context& inner) { return Dispatch(line, inner); });
}

}  // namespace

int RunGeminictl(const std::vector<std::string>& arguments, const Environment& environment) {
  absl::StatusOr<int> code = ParseAndDispatch(arguments, environment);
  if (const absl::Status lost = base::FinishOutput(*environment.out); code.ok() && !lost.ok()) {
    code = lost;
  }
  if (code.ok()) return *code;
  *environment.err << "geminictl: " << base::WithLimits(code.status()).message() << '\n'
                   << std::flush;
  return base::ExitCodeOf(code.status().code());
}

}  // namespace geminid::ctl
