// The command line of geminictl, parsed and checked.
#ifndef GEMINID_TOOLS_GEMINICTL_PROGRAM_COMMAND_LINE_H_
#define GEMINID_TOOLS_GEMINICTL_PROGRAM_COMMAND_LINE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/geminictl/commands/bundle.h"
#include "tools/geminictl/commands/explain.h"
#include "tools/geminictl/commands/jobs.h"
#include "tools/geminictl/commands/list.h"
#include "tools/geminictl/commands/trace.h"
#include "tools/geminictl/commands/wait.h"
#include "tools/geminictl/plan/plan_options.h"
#include "tools/geminictl/screen/top.h"
#include "tools/geminictl/screen/watch.h"

namespace geminid::ctl {

enum class Subcommand {
  kStatus,
  kTop,
  kListSessions,
  kListChunks,
  kListPools,
  kListJobs,
  kDrain,
  kEvict,
  kScale,
  kMigrate,
  kEnd,
  kExplain,
  kDoctor,
  kConfigShow,
  kPlan,
  kTraceSave,
  kTraceShow,
  kTraceExport,
  kWaitDaemon,
  kWaitJob,
  kBundle,
  kSchema,
  kVersion,
};

struct CommandLine {
  std::optional<Subcommand> subcommand;  // none: print `text`, which is help or the version
  std::string text;
  std::string socket;  // empty: not given
  bool json = false;
  bool no_color = false;
  absl::Duration timeout = absl::Seconds(10);
  TopOptions top;
  ListChunksOptions chunks;
  ChunkName chunk;
  bool origin = false;
  PlanFlags plan;
  TraceOptions trace;
  JobOptions jobs;
  WaitOptions wait;
  BundleOptions bundle;
  WatchOptions watch;
};

// `arguments` are without the program's name. INVALID_ARGUMENT says what is wrong with them.
absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_PROGRAM_COMMAND_LINE_H_
