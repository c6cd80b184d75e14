#include "tools/geminictl/commands/trace.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "base/exit_code.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "tools/geminictl/daemon/daemon_client.h"
#include "tools/geminictl/output/format.h"
#include "tools/geminictl/output/json_message.h"
#include "tools/geminictl/output/table.h"
#include "tools/sim/inputs.h"
#include "tools/sim/policies/policy.h"
#include "tools/sim/prediction.h"
#include "tools/sim/step_picture.h"
#include "tools/sim/timeline.h"
#include "training/forecast/trace_file.h"

namespace geminid::ctl {
namespace {

bool IsCalled(const v1::SessionInfo& session, const std::string& name) {
  return name.empty() || name == absl::StrCat(session.session()) ||
         name == absl::StrCat(session.job(), "/", session.rank());
}

absl::StatusOr<uint64_t> FindSession(DaemonClient* client, const std::string& name) {
  GEMINID_ASSIGN_OR_RETURN(const v1::ListSessionsResponse response, client->ListSessions());
  const v1::SessionInfo* found = nullptr;
  for (const v1::SessionInfo& session : response.sessions()) {
    if (!IsCalled(session, name)) continue;
    if (found != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "there are several sessions", name.empty() ? "" : absl::StrCat(" called ", name),
          "; say which, as in ", found->session(), "; 'geminictl ls sessions' lists them"));
    }
    found = &session;
  }
  if (found != nullptr) return found->session();
  return absl::NotFoundError(name.empty()
                                 ? "no session is attached to the daemon"
                                 : absl::StrCat("there is no session ", name,
                                                "; 'geminictl ls sessions' lists the sessions"));
}

// The totals of a trace.
struct Totals {
  uint64_t device_bytes = 0;
  uint64_t transfer_bytes = 0;
  uint64_t gradient_bytes = 0;
  uint64_t most_workspace_bytes = 0;
  uint64_t activation_bytes = 0;
  uint64_t uses = 0;
  double compute_seconds = 0;
};

Totals Sum(const forecast::RecordedTrace& recorded) {
  Totals totals;
  for (const planner::Chunk& chunk : recorded.trace.chunks) {
    totals.device_bytes += chunk.size_bytes;
    totals.transfer_bytes += chunk.transfer_bytes;
    totals.gradient_bytes += chunk.gradient_bytes;
  }
  for (const planner::MomentTrace& moment : recorded.trace.moments) {
    totals.uses += moment.uses.size();
    totals.most_workspace_bytes = std::max(totals.most_workspace_bytes, moment.workspace_bytes);
    totals.compute_seconds += moment.compute_seconds;
  }
  for (const planner::ActivationItem& item : recorded.activations) {
    totals.activation_bytes += item.bytes;
  }
  return totals;
}

std::string Summary(const forecast::RecordedTrace& recorded, const Style& style) {
  const Totals totals = Sum(recorded);
  const planner::LinkModel& link = recorded.trace.link;
  Table table({{"WHAT"}, {"VALUE"}});
  table.AddRow({"description", Printable(recorded.description)});
  table.AddRow({"ranks", absl::StrCat(recorded.world_size, ", ", recorded.ranks_on_node,
                                      " of them on this node")});
  table.AddRow({"tokens", recorded.tokens == 0 ? "not recorded" : absl::StrCat(recorded.tokens)});
  table.AddRow({"arena", base::FormatBytes(recorded.trace.arena_bytes)});
  table.AddRow({"chunks", absl::StrCat(recorded.trace.chunks.size(), ", ",
                                       base::FormatBytes(totals.device_bytes), " on the device")});
  table.AddRow({"loading_all", base::FormatBytes(totals.transfer_bytes)});
  table.AddRow({"gradients", base::FormatBytes(totals.gradient_bytes)});
  table.AddRow({"moments",
                absl::StrCat(recorded.trace.moments.size(), ", ", totals.uses, " uses of chunks")});
  table.AddRow({"computation", absl::StrFormat("%.3g s", totals.compute_seconds)});
  table.AddRow({"largest_workspace", base::FormatBytes(totals.most_workspace_bytes)});
  table.AddRow({"activations", absl::StrCat(recorded.activations.size(), ", ",
                                            base::FormatBytes(totals.activation_bytes))});
  table.AddRow({"optimizer", recorded.optimizer.empty() ? "not recorded" : "recorded"});
  table.AddRow({"link_up", FormatRate(link.h2d_bytes_per_second)});
  table.AddRow({"link_down", FormatRate(link.d2h_bytes_per_second)});
  return table.Render(style);
}

absl::StatusOr<v1::TraceFile> Load(const Context& context, const TraceOptions& options) {
  if (!options.file.empty()) return forecast::LoadTraceFile(options.file);
  GEMINID_ASSIGN_OR_RETURN(const std::unique_ptr<DaemonClient> client,
                           DaemonClient::Connect(context.socket, context.timeout));
  GEMINID_ASSIGN_OR_RETURN(const uint64_t session, FindSession(client.get(), options.session));
  return client->GetTrace(session);
}

// Plays two steps and returns the second, because the first begins with an empty device.
absl::StatusOr<sim::Prediction> PlayOneStep(const sim::Input& input) {
  GEMINID_ASSIGN_OR_RETURN(
      const sim::Schedule schedule,
      sim::MakeSchedule(input.workload.trace, {}, sim::SimulatedPlannerOptions()));
  sim::SimulationOptions simulation;
  simulation.steps = 1;
  simulation.keeps_events = true;
  return sim::Predict(input.machine, input.workload, schedule, simulation, /*seeds=*/1);
}

std::string ExportDocument(const TraceOptions& options, const sim::Prediction& prediction) {
  base::JsonWriter json;
  json.BeginObject();
  json.Key("schema_version").Value(kSchemaVersion);
  json.Key("perfetto").Value(options.perfetto).Key("svg").Value(options.svg);
  json.Key("step_seconds").Value(prediction.step_mean_seconds);
  json.Key("compute_seconds").Value(prediction.compute_seconds);
  json.Key("wait_seconds").BeginObject();
  for (size_t cause = 0; cause < prediction.wait_seconds.size(); ++cause) {
    json.Key(sim::Name(static_cast<sim::WaitCause>(cause))).Value(prediction.wait_seconds[cause]);
  }
  json.EndObject();
  json.Key("up_bytes").Value(prediction.up_bytes).Key("down_bytes").Value(prediction.down_bytes);
  json.Key("arena_bytes").Value(prediction.arena_bytes);
  json.EndObject();
  return json.text() + "\n";
}

}  // namespace

absl::StatusOr<int> RunTraceExport(const Context& context, const TraceOptions& options) {
  GEMINID_ASSIGN_OR_RETURN(const v1::TraceFile file, Load(context, options));
  GEMINID_ASSIGN_OR_RETURN(const sim::Input input, sim::FromTrace(file));
  GEMINID_ASSIGN_OR_RETURN(const sim::Prediction prediction, PlayOneStep(input));
  const sim::SimulationResult step = sim::ReportedOfFirstRank(prediction.first);
  if (!options.perfetto.empty()) {
    GEMINID_RETURN_IF_ERROR(base::ReplaceFile(options.perfetto, sim::TimelineJson(step)));
  }
  if (!options.svg.empty()) {
    const std::string title = absl::StrCat("One step, simulated: ", Printable(input.description));
    GEMINID_RETURN_IF_ERROR(base::ReplaceFile(options.svg, sim::StepSvg(title, step)));
  }
  *context.out << (context.json ? ExportDocument(options, prediction) : sim::ToText(prediction));
  return base::kExitOk;
}

absl::StatusOr<int> RunTraceSave(const Context& context, const TraceOptions& options) {
  GEMINID_ASSIGN_OR_RETURN(const std::unique_ptr<DaemonClient> client,
                           DaemonClient::Connect(context.socket, context.timeout));
  GEMINID_ASSIGN_OR_RETURN(const uint64_t session, FindSession(client.get(), options.session));
  GEMINID_ASSIGN_OR_RETURN(const v1::TraceFile file, client->GetTrace(session));
  GEMINID_RETURN_IF_ERROR(forecast::SaveTraceFile(options.file, file));
  *context.err << "saved the trace of session " << session << " to " << options.file << "\n";
  return base::kExitOk;
}

absl::StatusOr<int> RunTraceShow(const Context& context, const TraceOptions& options) {
  std::error_code error;  // of a path that cannot be resolved; the read below reports it
  if (!std::filesystem::exists(options.file, error) && !error) {
    return absl::NotFoundError(absl::StrCat(
        "there is no file '", options.file,
        "'; trace show reads what 'geminictl trace save SESSION -o FILE.json' has written"));
  }
  GEMINID_ASSIGN_OR_RETURN(const v1::TraceFile file, forecast::LoadTraceFile(options.file));
  const absl::StatusOr<forecast::RecordedTrace> recorded = forecast::FromMessage(file);
  if (!recorded.ok()) {
    return absl::Status(recorded.status().code(),
                        absl::StrCat(options.file, ": ", recorded.status().message()));
  }
  if (context.json) {
    *context.out << JsonDocument({&file});
  } else {
    *context.out << Summary(*recorded, context.style);
  }
  return base::kExitOk;
}

}  // namespace geminid::ctl
