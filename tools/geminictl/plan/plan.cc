#include "tools/geminictl/plan/plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/exit_code.h"
#include "base/flag_values.h"
#include "base/processors.h"
#include "base/status_macros.h"
#include "tools/geminictl/plan/plan_json.h"
#include "tools/geminictl/plan/plan_parallel.h"
#include "tools/geminictl/plan/plan_rules.h"
#include "tools/geminictl/plan/plan_view.h"
#include "tools/geminictl/plan/this_machine.h"
#include "training/forecast/forecast.h"
#include "training/forecast/trainer_need.h"

namespace geminid::ctl {
namespace {

// The figures of hardware and models are less accurate than this.
constexpr double kGainWorthSaying = 0.05;

absl::StatusOr<PlanAnswer> AnswerForTrace(const PlanRequest& request) {
  PlanAnswer answer;
  const forecast::RecordedTrace& trace = *request.trace;
  answer.subject = trace.description.empty() ? "the trace" : trace.description;
  GEMINID_ASSIGN_OR_RETURN(
      answer.forecast,
      forecast::MakeForecast(forecast::MakeProblem(trace, request.job), request.job, trace.tokens));
  if (answer.forecast.fits()) {
    GEMINID_ASSIGN_OR_RETURN(
        answer.least_host_bytes,
        forecast::LeastHostBytes(forecast::MakeProblem(trace, request.job), request.job));
  } else {
    GEMINID_ASSIGN_OR_RETURN(answer.changes, forecast::FittingChanges(trace, request.job));
  }
  return answer;
}

// The model is too large for a plan with numbers: adds the changes with which it would fit.
absl::Status WithChanges(const absl::Status& status, const PlanRequest& request) {
  GEMINID_ASSIGN_OR_RETURN(const std::vector<forecast::Change> changes,
                           forecast::FittingChanges(*request.model, request.job));
  std::string text(status.message());
  for (const forecast::Change& change : changes) {
    absl::StrAppend(&text, &change == &changes.front() ? "; it fits with " : ", or with ",
                    change.text);
  }
  return absl::ResourceExhaustedError(text);
}

absl::StatusOr<PlanAnswer> AnswerForModel(PlanRequest request) {
  PlanAnswer answer;
  if (request.family != nullptr) {
    GEMINID_ASSIGN_OR_RETURN(request.model,
                             forecast::LargestThatFits(*request.family, request.job));
  }
  const forecast::Model& model = *request.model;
  answer.subject = model.name;
  absl::StatusOr<forecast::Forecast> made = forecast::MakeForecast(model, request.job);
  if (absl::IsResourceExhausted(made.status())) return WithChanges(made.status(), request);
  if (!made.ok()) return made.status();
  answer.forecast = *std::move(made);
  if (answer.forecast.fits()) {
    GEMINID_ASSIGN_OR_RETURN(answer.least_host_bytes, forecast::LeastHostBytes(model, request.job));
  } else {
    GEMINID_ASSIGN_OR_RETURN(answer.changes, forecast::FittingChanges(model, request.job));
  }
  answer.model = model;
  return answer;
}

// The trainer's own number replaces the estimate of a plan, which does not know of the fp32 copies
// that a processor without products of bf16 works on.
void UseTrainersNumber(PlanAnswer* answer) {
  const forecast::Job& job = answer->job;
  if (!answer->model || !forecast::TrainerTrains(*answer->model)) return;
  const forecast::Model& model = *answer->model;
  forecast::WorkspaceShape shape = WorkspaceShapeOf(model);
  shape.batch = job.batch;
  shape.threads = std::max<std::size_t>(1, base::AllowedProcessors().size() / job.ranks_per_node());
  if (forecast::IsInTable(job.hardware)) shape.UseGpu();
  const std::uint64_t workspace = forecast::TrainerWorkspaceBytes(shape);
  const std::uint64_t bytes = forecast::TrainerDeviceBytes(
      model, {.workspace_bytes = workspace,
              .sharing_ranks = job.ranks,
              .whole_matrices = job.optimizer.options.kind == kernels::OptimizerKind::kMuon});
  answer->trainer_device_bytes = bytes;
  if (!job.recomputes()) return;  // the number is that of a run that recomputes
  // The number does not cover the host, nor a device with that much memory.
  const planner::TierBytes& host =
      answer->forecast.plan.tiers[static_cast<std::size_t>(planner::Tier::kHost)];
  if (host.peak > host.limit || bytes <= job.hardware.usable_bytes()) return;
  for (forecast::Change& change : answer->changes) {
    if (change.kind != forecast::Change::Kind::kDeviceBytes) continue;
    change.value = bytes;
    change.text = absl::StrCat("--device-memory ", base::ExactBytes(bytes),
                               ": geminid-train trains with it, recomputing activations");
  }
}

// Compares the engine's auto mode, which never streams, with an engine that streams all state. Only
// for state in host memory, if streaming takes no more of it.
absl::Status NoteStreaming(PlanAnswer* answer) {
  const forecast::Forecast& made = answer->forecast;
  const bool in_host_memory = made.fits() && made.state_mode == forecast::StateMode::kAuto &&
                              !made.plan.everything_on_device && !made.plan.disk.used;
  const bool streams = answer->job.optimizer.options.kind != kernels::OptimizerKind::kMuon;
  if (!in_host_memory || !streams) return absl::OkStatus();
  planner::TierProblem problem = made.problem;
  problem.machine.host_bytes = forecast::kMostHostBytes / answer->job.ranks_per_node();
  planner::Decisions decisions = made.plan.decisions;
  for (std::size_t c = 0; c < decisions.optimizer.size(); ++c) {
    const bool is_updated = problem.optimizer[c].parameters > 0;
    decisions.optimizer[c] =
        is_updated ? planner::OptimizerPlace::kStreamed : planner::OptimizerPlace::kHost;
  }
  GEMINID_ASSIGN_OR_RETURN(const planner::TierPlan streamed,
                           planner::EvaluateDecisions(problem, decisions));
  const double gain = 1 - streamed.seconds.step / made.plan.seconds.step;
  if (!streamed.fits || gain < kGainWorthSaying) return absl::OkStatus();
  answer->notes.push_back(absl::StrFormat(
      "With --optimizer-state streamed a step would be %.0f %% shorter; auto never streams.",
      100 * gain));
  return absl::OkStatus();
}

absl::StatusOr<PlanAnswer> AnswerTo(const PlanRequest& request) {
  GEMINID_ASSIGN_OR_RETURN(PlanAnswer answer, request.trace.has_value() ? AnswerForTrace(request)
                                                                        : AnswerForModel(request));
  answer.job = request.job;
  UseTrainersNumber(&answer);
  answer.missing_rates = request.missing_rates;
  answer.notes = request.notes;
  GEMINID_RETURN_IF_ERROR(NoteStreaming(&answer));
  answer.host_is_given = request.host_is_given;
  if (!request.host_is_given) {
    planner::TierBytes& host =
        answer.forecast.plan.tiers[static_cast<std::size_t>(planner::Tier::kHost)];
    host.limit = host.peak;  // replaces the stand-in for "as much as needed"
  }
  return answer;
}

absl::Status SaveTrace(const PlanAnswer& answer, const std::string& path) {
  const forecast::Job& job = answer.job;
  forecast::RecordedTrace recorded;
  recorded.description = absl::StrCat(answer.subject, ", ", job.batch.sequences, " x ",
                                      job.batch.sequence_length, " tokens, ", job.hardware.name);
  recorded.world_size = job.ranks;
  recorded.ranks_on_node = job.ranks_per_node();
  recorded.tokens = job.batch.tokens();
  recorded.trace = answer.forecast.problem.trace;
  recorded.optimizer = answer.forecast.problem.optimizer;
  recorded.activations = answer.forecast.problem.activations;
  return forecast::SaveTraceFile(path, forecast::ToMessage(recorded));
}

}  // namespace

absl::StatusOr<int> RunPlan(const Context& context, const PlanFlags& flags) {
  GEMINID_RETURN_IF_ERROR(CheckFlagsCombine(flags));
  if (flags.list_models) {
    *context.out << (context.json ? ModelListJson() : ModelList(context.style));
    return base::kExitOk;
  }
  if (flags.list_hardware) {
    *context.out << (context.json ? HardwareListJson() : HardwareList(context.style));
    return base::kExitOk;
  }
  GEMINID_ASSIGN_OR_RETURN(const PlanRequest request, ParsePlanFlags(flags, ReadThisMachine()));
  if (!flags.parallel.empty()) return RunParallelPlan(context, flags, request);
  GEMINID_ASSIGN_OR_RETURN(const PlanAnswer answer, AnswerTo(request));
  if (!flags.save_trace.empty()) {
    if (absl::Status status = SaveTrace(answer, flags.save_trace); !status.ok()) return status;
  }
  *context.out << (context.json ? PlanJson(answer) : PlanText(answer, context.style));
  return answer.forecast.fits() ? base::kExitOk : base::kExitResourceExhausted;
}

}  // namespace geminid::ctl
