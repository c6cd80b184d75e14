#include "tools/geminictl/commands/wait.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/flag_values.h"
#include "base/json_writer.h"
#include "base/status_macros.h"
#include "tools/geminictl/daemon/daemon_client.h"
#include "tools/geminictl/output/format.h"
#include "tools/geminictl/output/json_message.h"

namespace geminid::ctl {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(100);
constexpr const char* kStates[] = {"gathering", "queued", "running", "yielding",
                                   "preempted", "kept",   kGone};

// Connects anew each time, because the daemon may have restarted meanwhile.
absl::StatusOr<std::string> LeftOfDaemon(const Context& context) {
  GEMINID_ASSIGN_OR_RETURN(const std::unique_ptr<DaemonClient> client,
                           DaemonClient::Connect(context.socket, context.timeout));
  GEMINID_ASSIGN_OR_RETURN(const v1::Status status, client->GetStatus());
  if (status.phase() == "draining") {
    return std::string("the daemon to serve; it is draining");
  }
  if (status.drained()) {
    return std::string(
        "the daemon to admit jobs; it is drained, and 'geminictl drain --undo' ends that");
  }
  if (!status.ledger().adds_up()) return std::string("the daemon's ledger to add up");
  return std::string();
}

absl::StatusOr<std::string> LeftOfJob(const Context& context, const WaitOptions& options) {
  GEMINID_ASSIGN_OR_RETURN(const std::unique_ptr<DaemonClient> client,
                           DaemonClient::Connect(context.socket, context.timeout));
  GEMINID_ASSIGN_OR_RETURN(const v1::ListJobsResponse jobs, client->ListJobs());
  return LeftToWaitFor(jobs, options);
}

// The daemon may not run at present. Other errors are permanent.
bool MayPass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

absl::StatusOr<int> WaitFor(const Context& context, absl::Duration at_most,
                            const std::function<absl::StatusOr<std::string>()>& left) {
  const absl::Time begin = base::MonotonicNow();
  const absl::Time deadline = begin + at_most;
  std::string said;
  for (;;) {
    absl::StatusOr<std::string> now = left();
    if (!now.ok() && !MayPass(now.status())) return now.status();
    if (!now.ok()) now = absl::StrCat("an answer: ", now.status().message());
    if (now->empty()) break;
    if (*now != said) *context.err << "geminictl: waits for " << *now << '\n' << std::flush;
    said = *now;
    if (base::MonotonicNow() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "waited ", absl::FormatDuration(at_most), " for ", *now, "; wait longer with --at-most"));
    }
    absl::SleepFor(std::min(kPause, deadline - base::MonotonicNow()));
  }
  if (context.json) {
    base::JsonWriter json;
    json.BeginObject();
    json.Key("schema_version").Value(kSchemaVersion);
    json.Key("waited_seconds").Value(absl::ToDoubleSeconds(base::MonotonicNow() - begin));
    json.EndObject();
    *context.out << json.text() << "\n";
  }
  return base::kExitOk;
}

}  // namespace

absl::Status CheckJobState(const std::string& state) {
  if (std::ranges::find(kStates, state) != std::end(kStates)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(base::WithValue("--for", Printable(state)), "it must be one of: ",
                   absl::StrJoin(kStates, ", ")));
}

std::string LeftToWaitFor(const v1::ListJobsResponse& jobs, const WaitOptions& options) {
  std::vector<std::string> states;
  for (const v1::JobInfo& job : jobs.jobs()) {
    if (job.job() != options.job) continue;
    if (!options.tenant.empty() && job.tenant() != options.tenant) continue;
    if (job.state() == options.state) return "";
    std::string state = Printable(job.state());
    if (!job.reason().empty()) absl::StrAppend(&state, " (", Printable(job.reason()), ")");
    states.push_back(state);
  }
  if (states.empty() && options.state == kGone) return "";
  return absl::StrCat("job ", Printable(options.job), " to be ", options.state, "; ",
                      states.empty() ? "there is no job of that name"
                                     : absl::StrCat("it is ", absl::StrJoin(states, " and ")));
}

absl::StatusOr<int> RunWaitDaemon(const Context& context, const WaitOptions& options) {
  return WaitFor(context, options.at_most, [&] { return LeftOfDaemon(context); });
}

absl::StatusOr<int> RunWaitJob(const Context& context, const WaitOptions& options) {
  return WaitFor(context, options.at_most, [&] { return LeftOfJob(context, options); });
}

}  // namespace geminid::ctl
