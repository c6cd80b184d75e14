#include "tools/sim/run.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "base/exit_status.h"
#include "base/files.h"
#include "base/json_writer.h"
#include "base/status_macros.h"
#include "tools/sim/command_line.h"
#include "tools/sim/compare.h"
#include "tools/sim/elastic/elastic.h"
#include "tools/sim/inputs.h"
#include "tools/sim/memory_picture.h"
#include "tools/sim/prediction.h"
#include "tools/sim/timeline.h"
#include "training/forecast/catalogue.h"
#include "training/forecast/hardware.h"

namespace geminid::sim {
namespace {

constexpr size_t kBarColumns = 30;

absl::StatusOr<Input> MakeInput(const JobOptions& options) {
  Input input;
  if (!options.trace.empty()) {
    GEMINID_ASSIGN_OR_RETURN(input, FromTraceFile(options.trace));
  } else if (!options.random.empty()) {
    GEMINID_ASSIGN_OR_RETURN(input, FromRandom(options.random));
  } else {
    GEMINID_ASSIGN_OR_RETURN(const forecast::Model model, forecast::FindModel(options.model));
    forecast::Job job;
    GEMINID_ASSIGN_OR_RETURN(job.hardware, forecast::FindHardware(options.hardware));
    job.ranks = static_cast<uint32_t>(options.ranks);
    job.nodes = static_cast<uint32_t>(options.nodes);
    job.batch = {options.batch, options.sequence};
    job.host_bytes = options.host_bytes > 0 ? options.host_bytes : uint64_t{1} << 50;
    if (options.device_bytes.has_value()) {
      job.hardware.device_bytes = *options.device_bytes + job.hardware.reserved_bytes;
    }
    GEMINID_ASSIGN_OR_RETURN(input, FromModel(model, job));
  }
  if (options.device_bytes.has_value()) input.workload.trace.arena_bytes = *options.device_bytes;
  if (options.link_bytes_per_second.has_value()) {
    input.machine.up_bytes_per_second = *options.link_bytes_per_second;
    input.machine.down_bytes_per_second = *options.link_bytes_per_second;
  }
  if (options.host_bytes > 0) input.machine.host_bytes = options.host_bytes;
  for (const auto& [name, value] : options.fields) {
    GEMINID_RETURN_IF_ERROR(SetField(name, value, &input.machine));
  }
  GEMINID_RETURN_IF_ERROR(MoveState(options.state, input.machine, &input.workload));
  return input;
}

// Gives the planner the speed that copies have on the simulated machine.
void TellPlannerTheLink(Input* input) {
  planner::LinkModel& link = input->workload.trace.link;
  link.h2d_bytes_per_second = input->machine.up_bytes_per_second;
  link.d2h_bytes_per_second = input->machine.down_bytes_per_second;
}

absl::Status Run(const CommandLine& line, std::ostream& out) {
  GEMINID_ASSIGN_OR_RETURN(Input input, MakeInput(line.job));
  TellPlannerTheLink(&input);
  planner::PlannerOptions planning = SimulatedPlannerOptions();
  if (line.lookahead_moments.has_value()) {
    planning.max_lookahead_moments = static_cast<uint32_t>(*line.lookahead_moments);
  }
  GEMINID_ASSIGN_OR_RETURN(const Schedule schedule,
                           MakeSchedule(input.workload.trace, line.policy, planning));
  GEMINID_ASSIGN_OR_RETURN(
      const Prediction prediction,
      Predict(input.machine, input.workload, schedule, line.simulation, line.seeds));
  if (!line.timeline.empty()) {
    GEMINID_RETURN_IF_ERROR(base::ReplaceFile(line.timeline, TimelineJson(prediction.first)));
  }
  if (!line.memory_picture.empty()) {
    const std::string title = line.title.empty()
                                  ? absl::StrCat(input.description, ", policy ", schedule.policy)
                                  : line.title;
    GEMINID_RETURN_IF_ERROR(base::ReplaceFile(
        line.memory_picture, ToSvg({title, prediction.arena_bytes, prediction.first.moments})));
  }
  out << (line.json ? ToJson(prediction) : ToText(prediction));
  return absl::OkStatus();
}

std::string CompareJson(const std::vector<Outcome>& outcomes) {
  base::JsonWriter json;
  json.BeginArray();
  for (const Outcome& outcome : outcomes) {
    json.BeginObject().Key("policy").Value(outcome.policy);
    json.Key("fits").Value(outcome.does_not_fit.empty());
    json.Key("up_bytes").Value(outcome.up_bytes).Key("down_bytes").Value(outcome.down_bytes);
    json.Key("step_seconds").Value(outcome.step_seconds);
    json.Key("wait_seconds").Value(outcome.wait_seconds).EndObject();
  }
  json.EndArray();
  return json.text() + "\n";
}

std::string CompareText(const std::vector<Outcome>& outcomes) {
  double longest = 0;
  for (const Outcome& outcome : outcomes) longest = std::max(longest, outcome.step_seconds);
  std::string text =
      absl::StrFormat("%-12s %12s %12s %12s %12s\n", "POLICY", "UP", "DOWN", "STEP", "WAITING");
  for (const Outcome& outcome : outcomes) {
    if (!outcome.does_not_fit.empty()) {
      absl::StrAppendFormat(&text, "%-12s does not fit\n", outcome.policy);
      continue;
    }
    const auto columns = static_cast<size_t>(
        std::lround(static_cast<double>(kBarColumns) * outcome.step_seconds / longest));
    absl::StrAppendFormat(&text, "%-12s %12s %12s %9.3f ms %9.3f ms  %s\n", outcome.policy,
                          base::FormatBytes(static_cast<uint64_t>(outcome.up_bytes)),
                          base::FormatBytes(static_cast<uint64_t>(outcome.down_bytes)),
                          1e3 * outcome.step_seconds, 1e3 * outcome.wait_seconds,
                          std::string(std::max<size_t>(columns, 1), '#'));
  }
  return text;
}

std::string SavingsJson(const std::vector<Savings>& all) {
  base::JsonWriter json;
  json.BeginArray();
  for (const Savings& savings : all) {
    json.BeginObject().Key("rival").Value(savings.rival).Key("kind").Value(savings.kind);
    json.Key("traces").Value(savings.traces).Key("does_not_fit").Value(savings.does_not_fit);
    json.Key("auto_moves_more").Value(savings.auto_moves_more);
    json.Key("auto_takes_longer").Value(savings.auto_takes_longer);
    for (const auto& [name, ratios] : {std::pair{"byte_ratio", &savings.byte_ratios},
                                       std::pair{"time_ratio", &savings.time_ratios}}) {
      json.Key(name).BeginObject();
      json.Key("least").Value(Quantile(*ratios, 0)).Key("median").Value(Quantile(*ratios, 0.5));
      json.Key("p90").Value(Quantile(*ratios, 0.9)).Key("most").Value(Quantile(*ratios, 1));
      json.EndObject();
    }
    json.EndObject();
  }
  json.EndArray();
  return json.text() + "\n";
}

std::string SavingsText(const std::vector<Savings>& all) {
  std::string text =
      "Rival over planner: bytes moved and time of a step (least, median, nine tenths, most).\n";
  absl::StrAppendFormat(&text, "%-9s %-12s %6s %6s  %-23s  %-23s %s\n", "KIND", "RIVAL", "TRACES",
                        "UNFIT", "BYTES", "TIME", "PLANNER WORSE (bytes, time)");
  for (const Savings& savings : all) {
    const auto ratios = [](const std::vector<double>& r) {
      return absl::StrFormat("%.3f %.3f %.3f %.3f", Quantile(r, 0), Quantile(r, 0.5),
                             Quantile(r, 0.9), Quantile(r, 1));
    };
    absl::StrAppendFormat(&text, "%-9s %-12s %6d %6d  %-23s  %-23s %d, %d\n", savings.kind,
                          savings.rival, savings.traces, savings.does_not_fit,
                          ratios(savings.byte_ratios), ratios(savings.time_ratios),
                          savings.auto_moves_more, savings.auto_takes_longer);
  }
  return text;
}

absl::Status RunCompare(const CommandLine& line, std::ostream& out) {
  const JobOptions& job = line.job;
  if (job.trace.empty() && job.random.empty() && job.model.empty()) {
    GEMINID_ASSIGN_OR_RETURN(const std::vector<Savings> savings,
                             CompareOnRandomTraces(line.traces, line.simulation.seed));
    out << (line.json ? SavingsJson(savings) : SavingsText(savings));
    return absl::OkStatus();
  }
  GEMINID_ASSIGN_OR_RETURN(Input input, MakeInput(job));
  TellPlannerTheLink(&input);
  GEMINID_ASSIGN_OR_RETURN(const std::vector<Outcome> outcomes,
                           Compare(input.machine, input.workload, AllPolicies(), line.simulation));
  out << (line.json ? CompareJson(outcomes) : CompareText(outcomes));
  return absl::OkStatus();
}

}  // namespace

int RunGeminidSim(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  const absl::StatusOr<CommandLine> line = ParseCommandLine(arguments);
  absl::Status status = line.status();
  if (status.ok() && !line->subcommand.has_value()) {
    out << line->text;
  } else if (status.ok()) {
    switch (*line->subcommand) {
      case Subcommand::kRun:
        status = Run(*line, out);
        break;
      case Subcommand::kCompare:
        status = RunCompare(*line, out);
        break;
      case Subcommand::kElastic:
        status = RunElastic(line->elastic, line->json, out);
        break;
    }
  }
  if (status.ok()) status = base::FinishOutput(out);
  if (status.ok()) return base::kExitOk;
  err << "geminid-sim: " << std::string(status.message()) << "\n";
  return base::ExitCodeOf(status.code());
}

}  // namespace geminid::sim
