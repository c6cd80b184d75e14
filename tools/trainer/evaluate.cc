#include "tools/trainer/evaluate.h"

#include <cmath>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "client/checkpoint/newest.h"
#include "tools/trainer/flags/resumed_run.h"
#include "tools/trainer/flags/run_terms.h"
#include "training/data/data_sum.h"
#include "training/engines/evaluation.h"
#include "training/launch/stop_signals.h"
#include "training/run/gather_report.h"
#include "training/run/report.h"

namespace geminid::trainer {
namespace {

// Of a run's checkpoint that is measured on data that the run trained on: says so. Else empty.
absl::StatusOr<std::string> NoteOfTrainedData(const TrainOptions& options,
                                              const TokenSource& data) {
  const absl::StatusOr<std::string> folder = checkpoint::FolderOfValues(options.load);
  const absl::StatusOr<RunDescription> run = folder.ok() ? ReadRunOf(*folder) : folder.status();
  if (!run.ok()) return std::string();  // loading says why
  const auto held_out = run->terms.find("validation");
  const auto learnt = run->terms.find(kDataTerm);
  if (held_out == run->terms.end() || learnt == run->terms.end()) return std::string();
  const double measured = options.validation_share > 0 ? options.validation_share : 1;
  double share = 0;
  if (!held_out->second.empty() && !absl::SimpleAtod(held_out->second, &share))
    return std::string();
  if (measured <= share) return std::string();
  GEMINID_ASSIGN_OR_RETURN(const std::string sum, SumOfData(data));
  if (sum != learnt->second) return std::string();
  const std::string held =
      share > 0 ? absl::StrCat("held out ", share, " of it; give --validation ", share)
                : "held out nothing of it";
  return absl::StrCat("the measured data includes data that the run of ", options.load,
                      " has trained on: it ", held);
}

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
  report.validation = {
      {.step = 0, .loss = run.evaluation.loss, .accuracy = run.evaluation.accuracy}};
  report.step_seconds = {run.evaluation.seconds};
  return report;
}

std::string Words(const TrainOptions& options, const Evaluation& evaluation) {
  std::string words =
      evaluation.signal != 0
          ? absl::StrCat("stopped by ", SignalName(evaluation.signal), " before there was a loss")
      : evaluation.accuracy
          ? absl::StrFormat("loss %.4f, accuracy %.2f%%, of %d images in %.1fs", evaluation.loss,
                            100 * *evaluation.accuracy, evaluation.tokens / options.model.context,
                            evaluation.seconds)
          : absl::StrFormat("loss %.4f, perplexity %.4g, of %d tokens in %.1fs", evaluation.loss,
                            std::exp(evaluation.loss), evaluation.tokens, evaluation.seconds);
  if (!options.report.empty()) absl::StrAppend(&words, "; the report is ", options.report);
  return absl::StrCat("geminid-train: ", words, "\n");
}

}  // namespace

absl::StatusOr<TrainEnd> EvaluateAsRank(const TrainOptions& options, const RankContext& context) {
  std::string note;
  if (context.info.rank == 0) {
    GEMINID_ASSIGN_OR_RETURN(note, NoteOfTrainedData(options, *context.data));
    if (!note.empty()) context.write_stderr(absl::StrCat("geminid-train: ", note, "\n"));
  }
  const auto write = [&](const EvaluatedRun& run) -> absl::Status {
    GEMINID_ASSIGN_OR_RETURN(Report report, ReportOf(run, context.data->listing()));
    if (!note.empty()) report.notes.push_back(note);
    if (context.info.rank != 0 || options.report.empty()) return absl::OkStatus();
    return base::ReplaceFile(options.report, EvaluationJson(report));
  };
  GEMINID_ASSIGN_OR_RETURN(const Evaluation evaluation, EvaluateOnRank(options, context, write));
  if (context.info.rank == 0) context.write_stderr(Words(options, evaluation));
  return TrainEnd{.signal = evaluation.signal,
                  .diverged = evaluation.signal == 0 && !std::isfinite(evaluation.loss)};
}

}  // namespace geminid::trainer
