#include "tools/geminictl/commands/jobs.h"

#include <algorithm>
#include <functional>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "tools/geminictl/daemon/daemon_client.h"
#include "tools/geminictl/output/format.h"
#include "tools/geminictl/output/json_message.h"
#include "tools/geminictl/output/table.h"

namespace geminid::ctl {
namespace {

using ClientPtr = std::unique_ptr<DaemonClient>;

constexpr absl::Duration kPause = absl::Milliseconds(200);
constexpr size_t kJobsNamed = 3;
// The time for ranks to end by themselves.
constexpr absl::Duration kEndGrace = absl::Seconds(3);
// The time in which a job that changes its number of ranks may have none.
constexpr absl::Duration kChangeGrace = absl::Seconds(60);

std::string DeviceBytes(const v1::JobInfo& job) {
  if (job.device_bytes().empty()) return base::FormatBytes(0);
  return absl::StrJoin(job.device_bytes(), ", ",
                       [&job](std::string* out, const v1::JobDeviceBytes& line) {
                         absl::StrAppend(out, base::FormatBytes(line.bytes()));
                         if (job.device_bytes_size() > 1 || line.device() > 0) {
                           absl::StrAppend(out, " on ", line.device());
                         }
                       });
}

// Why a job has its number of ranks, if the daemon shares the node with it.
std::string WhyOf(const v1::JobInfo& job) {
  if (!job.reason().empty() || !job.has_sharing()) return job.reason();
  return absl::StrCat("shared: ", job.sharing().why());
}

bool Waits(const v1::JobInfo& job) { return job.state() == "gathering" || job.state() == "queued"; }

// The jobs that a drained daemon waits for.
std::vector<const v1::JobInfo*> Remaining(const v1::ListJobsResponse& jobs) {
  std::vector<const v1::JobInfo*> remaining;
  for (const v1::JobInfo& job : jobs.jobs()) {
    if (!Waits(job)) remaining.push_back(&job);
  }
  return remaining;
}

std::string NameThem(const std::vector<const v1::JobInfo*>& jobs) {
  const size_t shown = std::min(jobs.size(), kJobsNamed);
  std::string names = absl::StrJoin(jobs.begin(), jobs.begin() + static_cast<int64_t>(shown), ", ",
                                    [](std::string* out, const v1::JobInfo* job) {
                                      absl::StrAppend(out, Printable(job->job()), " of ",
                                                      Printable(job->tenant()), " (", job->state(),
                                                      ", ", base::FormatBytes(job->host_bytes()),
                                                      " host, ", DeviceBytes(*job), " device)");
                                    });
  if (jobs.size() > shown) absl::StrAppend(&names, " and ", jobs.size() - shown, " more");
  return names;
}

// Polls until `left` returns nothing. Prints its text whenever it changes.
absl::Status WaitUntil(const Context& context, DaemonClient* client, absl::Duration at_most,
                       const std::function<std::string(const v1::ListJobsResponse&)>& left) {
  const absl::Time deadline = base::MonotonicNow() + at_most;
  std::string said;
  for (;;) {
    GEMINID_ASSIGN_OR_RETURN(const v1::ListJobsResponse jobs, client->ListJobs());
    const std::string now = left(jobs);
    if (now.empty()) return absl::OkStatus();
    if (now != said) *context.err << "geminictl: waits for " << now << '\n' << std::flush;
    said = now;
    if (base::MonotonicNow() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("after ", absl::FormatDuration(at_most),
                                                      " there is still ", now,
                                                      "; wait longer, or 'geminictl end' it"));
    }
    absl::SleepFor(std::min(kPause, deadline - base::MonotonicNow()));
  }
}

std::string TenantOr(const JobOptions& options, const char* otherwise) {
  return options.tenant.empty() ? otherwise : Printable(options.tenant);
}

absl::Status Confirm(const Context& context, const JobOptions& options) {
  if (options.yes) return absl::OkStatus();
  if (!context.interactive) {
    return absl::InvalidArgumentError(
        absl::StrCat("end stops all ranks of job ", options.job,
                     " and frees its memory, kept memory too; give --yes to do that"));
  }
  *context.err << "geminictl: end all ranks of job " << Printable(options.job) << " of "
               << TenantOr(options, "yours") << " and free its memory? [y/N] " << std::flush;
  std::string answer;
  std::getline(std::cin, answer);
  if (answer == "y" || answer == "yes") return absl::OkStatus();
  return absl::CancelledError("nothing was ended");
}

// A job that changes its ranks has none for a moment. It is ended as soon as it has ranks again, or
// as soon as the launcher that moves it to another host reports.
absl::StatusOr<v1::EndJobResponse> EndWithRanks(const Context& context, DaemonClient* client,
                                                const v1::EndJobRequest& request) {
  const absl::Time deadline = base::MonotonicNow() + kChangeGrace;
  for (bool said = false;; said = true) {
    absl::StatusOr<v1::EndJobResponse> ended = client->EndJob(request);
    const bool changes = absl::IsFailedPrecondition(ended.status());
    if (!changes || base::MonotonicNow() >= deadline) return ended;
    if (!said) {
      *context.err << "geminictl: waits for the next ranks of job " << Printable(request.job())
                   << '\n'
                   << std::flush;
    }
    absl::SleepFor(kPause);
  }
}

// A job whose ranks have died takes requests again when they have started again.
absl::StatusOr<v1::ScaleRequest> AskToScale(const Context& context, DaemonClient* client,
                                            const v1::ScaleJobRequest& request,
                                            absl::Time deadline) {
  for (bool said = false;; said = true) {
    absl::StatusOr<v1::ScaleRequest> asked = client->ScaleJob(request);
    if (!absl::IsAborted(asked.status())) return asked;
    if (base::MonotonicNow() >= deadline) {
      return absl::DeadlineExceededError(std::string(asked.status().message()));
    }
    if (!said) {
      *context.err << "geminictl: waits for the ranks of job " << Printable(request.job())
                   << " to start again\n"
                   << std::flush;
    }
    absl::SleepFor(std::min(kPause, deadline - base::MonotonicNow()));
  }
}

// Says it once. A daemon that cannot list its jobs ends no wait.
void SayWhyScaleWaits(const Context& context, DaemonClient* client, const v1::ScaleRequest& scale,
                      bool* said) {
  if (*said) return;
  const absl::StatusOr<v1::ListJobsResponse> jobs = client->ListJobs();
  const std::string why = jobs.ok() ? WhyScaleWaits(*jobs, scale) : "";
  if (why.empty()) return;
  *context.err << "geminictl: job " << Printable(scale.job()) << " is " << why << '\n'
               << std::flush;
  *said = true;
}

}  // namespace

std::string WhyScaleWaits(const v1::ListJobsResponse& jobs, const v1::ScaleRequest& scale) {
  for (const v1::JobInfo& job : jobs.jobs()) {
    if (job.job() != scale.job() || job.tenant() != scale.tenant()) continue;
    if (job.held()) {
      return absl::StrCat(
          "evicted, and takes the request when it is back; 'geminictl evict --undo ",
          Printable(job.job()), "' lets it go on");
    }
    if (Waits(job) || job.state() == "preempted") {
      return absl::StrCat(job.state(), ", and takes the request when it runs again");
    }
  }
  return "";
}

std::string DescribeJobs(const v1::ListJobsResponse& jobs, const Style& style) {
  Table table({{"TENANT"},
               {"JOB"},
               {"RANKS", Align::kRight},
               {"STATE"},
               {"PRIORITY", Align::kRight},
               {"HOST_MEM", Align::kRight},
               {"DEVICE_MEM", Align::kRight},
               {"SINCE", Align::kRight},
               {"WHY"}});
  for (const v1::JobInfo& job : jobs.jobs()) {
    std::string state = job.state();
    if (job.position() > 0) absl::StrAppend(&state, " ", job.position());
    table.AddRow({job.tenant(), job.job(),
                  absl::StrCat(job.ranks_present(), "/", job.ranks_expected()), state,
                  job.job_id() == 0 ? "" : absl::StrCat(job.priority()),
                  base::FormatBytes(job.host_bytes()), DeviceBytes(job),
                  FormatDuration(job.seconds_in_state()), WhyOf(job)});
  }
  return table.Render(style);
}

absl::StatusOr<int> RunListJobs(const Context& context) {
  GEMINID_ASSIGN_OR_RETURN(const ClientPtr client,
                           DaemonClient::Connect(context.socket, context.timeout));
  GEMINID_ASSIGN_OR_RETURN(const v1::ListJobsResponse jobs, client->ListJobs());
  *context.out << (context.json ? JsonDocument({&jobs}) : DescribeJobs(jobs, context.style));
  if (jobs.drained()) {
    *context.err << "geminictl: the daemon is drained and takes no new jobs; 'geminictl drain "
                    "--undo' ends that\n";
  }
  return base::kExitOk;
}

absl::StatusOr<int> RunDrain(const Context& context, const JobOptions& options) {
  GEMINID_ASSIGN_OR_RETURN(const ClientPtr client,
                           DaemonClient::Connect(context.socket, context.timeout));
  GEMINID_ASSIGN_OR_RETURN(v1::DrainResponse drained, client->Drain(options.undo));
  if (options.wait && !options.undo) {
    GEMINID_RETURN_IF_ERROR(WaitUntil(
        context, client.get(), options.wait_at_most, [](const v1::ListJobsResponse& jobs) {
          const auto remaining = Remaining(jobs);
          if (remaining.empty()) return std::string();
          return absl::StrCat(base::Counted(remaining.size(), "job"), ": ", NameThem(remaining));
        }));
    GEMINID_ASSIGN_OR_RETURN(drained, client->Drain(false));
  }
  if (context.json) {
    *context.out << JsonDocument({&drained});
  } else if (!drained.drained()) {
    *context.out << "The daemon admits new jobs.\n";
  } else {
    *context.out << "The daemon admits no new jobs. "
                 << (drained.jobs() == 0
                         ? std::string("It is empty")
                         : absl::StrCat(drained.jobs(), " still hold memory or run"))
                 << ", " << drained.queued() << " wait.\n";
  }
  return base::kExitOk;
}

absl::StatusOr<int> RunEvict(const Context& context, const JobOptions& options) {
  GEMINID_ASSIGN_OR_RETURN(const ClientPtr client,
                           DaemonClient::Connect(context.socket, context.timeout));
  v1::EvictJobRequest request;
  request.set_job(options.job);
  request.set_tenant(options.tenant);
  request.set_undo(options.undo);
  GEMINID_ASSIGN_OR_RETURN(const v1::EvictJobResponse evicted, client->EvictJob(request));
  if (options.wait && !options.undo) {
    const auto left = [&options](const v1::ListJobsResponse& jobs) -> std::string {
      for (const v1::JobInfo& job : jobs.jobs()) {
        const bool is_it = job.job() == options.job && job.held() &&
                           (options.tenant.empty() || job.tenant() == options.tenant);
        // A held job runs on until all its ranks have their arenas. Then it gives these back.
        if (is_it && (job.state() == "yielding" || job.state() == "running")) {
          return absl::StrCat("job ", Printable(job.job()), " to end its step and give back ",
                              DeviceBytes(job));
        }
      }
      return "";
    };
    GEMINID_RETURN_IF_ERROR(WaitUntil(context, client.get(), options.wait_at_most, left));
  }
  if (context.json) {
    *context.out << JsonDocument({&evicted});
  } else if (options.undo) {
    *context.out << "Job " << Printable(options.job) << " goes on as soon as it fits.\n";
  } else {
    *context.out << "Job " << Printable(options.job)
                 << (options.wait ? " has left the device" : " leaves the device after its step")
                 << "; 'geminictl evict --undo' lets it go on.\n";
  }
  return base::kExitOk;
}

absl::StatusOr<int> RunScale(const Context& context, const JobOptions& options) {
  GEMINID_ASSIGN_OR_RETURN(const ClientPtr client,
                           DaemonClient::Connect(context.socket, context.timeout));
  v1::ScaleJobRequest request;
  request.set_job(options.job);
  request.set_tenant(options.tenant);
  request.set_ranks(options.ranks);
  request.set_host(options.host);
  const bool moves = !options.host.empty();
  const absl::Time deadline = base::MonotonicNow() + options.wait_at_most;
  GEMINID_ASSIGN_OR_RETURN(v1::ScaleRequest scale,
                           AskToScale(context, client.get(), request, deadline));
  if (moves && scale.host().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the daemon is of an older version and knows no other hosts: it asked job ",
                     Printable(options.job), " for ", base::Counted(scale.ranks(), "rank"),
                     " where it is; update the daemon"));
  }
  bool said_why = false;
  while (scale.state() != "done" && scale.state() != "refused") {
    if (scale.state() == "asked") SayWhyScaleWaits(context, client.get(), scale, &said_why);
    if (base::MonotonicNow() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "after ", absl::FormatDuration(options.wait_at_most), " job ", Printable(options.job),
          moves ? absl::StrCat(" is not at ", Printable(options.host),
                               " yet; the request remains, and 'geminictl ls jobs' shows whether "
                               "the job has left")
                : absl::StrCat(" has not ended its step; the request for ",
                               base::Counted(scale.ranks(), "rank"),
                               " remains, and 'geminictl ls jobs' shows how many the job "
                               "has, and whether it trains")));
    }
    absl::SleepFor(std::min(kPause, deadline - base::MonotonicNow()));
    GEMINID_ASSIGN_OR_RETURN(scale, client->GetScale(scale.number()));
  }
  if (scale.state() == "refused") {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", Printable(options.job),
        moves ? absl::StrCat(" was not moved to ", Printable(options.host))
              : absl::StrCat(" was not scaled to ", base::Counted(scale.ranks(), "rank")),
        ": ", Printable(scale.message())));
  }
  if (context.json) {
    *context.out << JsonDocument({&scale});
  } else {
    *context.out << "Job " << Printable(options.job) << " " << Printable(scale.message()) << ".\n";
  }
  return base::kExitOk;
}

absl::StatusOr<int> RunEnd(const Context& context, const JobOptions& options) {
  GEMINID_RETURN_IF_ERROR(Confirm(context, options));
  GEMINID_ASSIGN_OR_RETURN(const ClientPtr client,
                           DaemonClient::Connect(context.socket, context.timeout));
  v1::EndJobRequest request;
  request.set_job(options.job);
  request.set_tenant(options.tenant);
  GEMINID_ASSIGN_OR_RETURN(const v1::EndJobResponse ended,
                           EndWithRanks(context, client.get(), request));
  if (!ended.host().empty()) {  // no rank is here, and its launcher ends what is at that host
    *context.out << (context.json
                         ? JsonDocument({&ended})
                         : absl::StrCat("Ended job ", Printable(options.job), " on its way to ",
                                        Printable(ended.host()), ".\n"));
    return base::kExitOk;
  }
  // Ranks that end by themselves print the reason, and leave no half-written files.
  (void)WaitUntil(context, client.get(), kEndGrace, [&options](const v1::ListJobsResponse& jobs) {
    for (const v1::JobInfo& job : jobs.jobs()) {
      const bool is_it =
          job.job() == options.job && (options.tenant.empty() || job.tenant() == options.tenant);
      if (is_it && job.ranks_present() > 0) return absl::StrCat("its ranks to end");
    }
    return std::string();
  });
  request.set_now(true);
  const absl::StatusOr<v1::EndJobResponse> left = client->EndJob(request);
  if (!left.ok() && !absl::IsNotFound(left.status())) return left.status();
  if (context.json) {
    *context.out << JsonDocument({&ended});
  } else {
    *context.out << "Ended job " << Printable(options.job) << ": "
                 << base::Counted(ended.sessions(), "session") << ", "
                 << base::FormatBytes(ended.bytes()) << " freed.\n";
  }
  return base::kExitOk;
}

}  // namespace geminid::ctl
