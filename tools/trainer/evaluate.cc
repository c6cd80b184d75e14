#include "tools/trainer/evaluate.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "training/engines/evaluation.h"
#include "training/launch/stop_signals.h"
#include "training/run/gather_report.h"
#include "training/run/report.h"

namespace geminid::trainer {
namespace {

absl::StatusOr<Report> ReportOf(const EvaluatedRun& run, const DataListing& data) {
  Report report;
  DescribeRun(run.options, run.model, run.session, &report);
  GEMINID_RETURN_IF_ERROR(GatherRun(run.communicator, run.model, run.session, &report));
  report.data = data;
  report.parameters = CountParameters(run.options.model);
  report.mesh = run.mesh.ToString();
  report.threads = run.evaluation.threads;
  report.validation_tokens = run.evaluation.tokens;
  report.ended_by = run.evaluation.signal != 0 ? SignalName(run.evaluation.signal) : "evaluation";
  if (run.evaluation.signal != 0) return report;
  report.validation = {{.step = 0, .loss = run.evaluation.loss}};
  report.step_seconds = {run.evaluation.seconds};
  return report;
}

std::string Words(const TrainOptions& options, const Evaluation& evaluation) {
  std::string words =
      evaluation.signal != 0
          ? absl::StrCat("stopped by ", SignalName(evaluation.signal), " before there was a loss")
          : absl::StrFormat("loss %.4f, perplexity %.4g, of %d tokens in %.1fs", evaluation.loss,
                            std::exp(evaluation.loss), evaluation.tokens, evaluation.seconds);
  if (!options.report.empty()) absl::StrAppend(&words, "; the report is ", options.report);
  return absl::StrCat("geminid-train: ", words, "\n");
}

}  // namespace

absl::StatusOr<TrainEnd> EvaluateAsRank(const TrainOptions& options, const RankContext& context) {
  const auto write = [&](const EvaluatedRun& run) -> absl::Status {
    GEMINID_ASSIGN_OR_RETURN(const Report report, ReportOf(run, context.data->listing()));
    if (context.info.rank != 0 || options.report.empty()) return absl::OkStatus();
    return base::ReplaceFile(options.report, EvaluationJson(report));
  };
  GEMINID_ASSIGN_OR_RETURN(const Evaluation evaluation, EvaluateOnRank(options, context, write));
  if (context.info.rank == 0) context.write_stderr(Words(options, evaluation));
  return TrainEnd{.signal = evaluation.signal,
                  .diverged = evaluation.signal == 0 && !std::isfinite(evaluation.loss)};
}

}  // namespace geminid::trainer
