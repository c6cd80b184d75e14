// The command line of geminictl, parsed and checked.
#ifndef GEMINID_TOOLS_GEMINICTL_COMMAND_LINE_H_
#define GEMINID_TOOLS_GEMINICTL_COMMAND_LINE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/geminictl/bundle.h"
#include "tools/geminictl/jobs.h"
#include "tools/geminictl/plan_options.h"
#include "tools/geminictl/trace.h"
#include "tools/geminictl/wait.h"
#include "tools/geminictl/watch.h"

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

enum class TopOrder { kStall, kBytes };

struct TopOptions {
  bool once = false;
  bool ascii = false;
  absl::Duration interval = absl::Seconds(2);
  TopOrder order = TopOrder::kStall;
};

struct ListChunksOptions {
  uint64_t session = 0;  // 0: all
  uint32_t limit = 1000;
};

// "3/42", or "42" where one session is attached.
struct ChunkName {
  std::optional<uint64_t> session;
  uint32_t chunk = 0;
};
absl::StatusOr<ChunkName> ParseChunkName(const std::string& text);

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

// Without the program's name. INVALID_ARGUMENT for everything that is wrong with it.
absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_COMMAND_LINE_H_
