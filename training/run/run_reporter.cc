#include "training/run/run_reporter.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "training/launch/stop_signals.h"
#include "training/run/gather_report.h"
#include "training/run/run_words.h"
#include "training/settings/idle_flags.h"

namespace geminid::trainer {
namespace {

ProgressMode ModeOf(const TrainOptions& options, const RankContext& context) {
  if (context.info.rank != 0) return ProgressMode::kNone;
  if (options.progress) return *options.progress;
  return context.stderr_is_terminal ? ProgressMode::kTerminal : ProgressMode::kLines;
}

// In the report, of a run that ended early.
std::string ByWhat(const TrainEnd& end) {
  if (end.signal != 0) return SignalName(end.signal);
  if (end.no_data) return "data";
  return end.spent ? "endurance" : "nan";
}

}  // namespace

RunReporter::RunReporter(const TrainOptions& options, const RankContext& context)
    : options_(options),
      context_(context),
      progress_(ModeOf(options, context), context.write_stderr, context.terminal_width),
      memory_words_(options_, context_.info) {}

void RunReporter::WarnOnce(const std::string& words) {
  if (leads()) progress_.Warn(absl::StrCat("geminid-train: ", words));
}

PhaseTeller::Write RunReporter::PhaseWriter() {
  if (!leads() || options_.progress == ProgressMode::kNone) return nullptr;
  return [this](const std::string& line) { progress_.Warn(line); };
}

// --- before the first step -----------------------------------------------------------------------

absl::Status RunReporter::OpenLog() {
  if (!leads()) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(
      log_, RunLog::Open({.lines = options_.log,
                          .tensorboard = options_.tensorboard,
                          .appends = options_.resume || !context_.restarts.is_first()},
                         base::WallClockNow()));
  return absl::OkStatus();
}

void RunReporter::SayMesh(const RunMesh& found) {
  report_.choice = found.choice;
  report_.mesh_warning = found.warning;
  if (found.choice) progress_.Announce(absl::StrCat("parallel auto: ", found.choice->why));
  if (!found.warning.empty()) WarnOnce(found.warning);
}

// The notes of the command line were said when it was read.
void RunReporter::Describe(const RunRank& rank, const RunBatches& batches) {
  DescribeRun(options_, *rank.model, *rank.session, &report_);
  report_.data = context_.data->listing();
  report_.tokens_per_step = batches.batches().tokens_per_step();
  report_.samples_per_epoch = batches.batches().samples_per_epoch();
  for (const std::string& note : IdleFlags(options_, report_.samples_per_epoch)) {
    report_.notes.push_back(note);
    WarnOnce(note);
  }
  training_began_ = base::MonotonicNow();
  const BatchCourse& course = batches.course();
  if (!course.follows_noise()) return;
  report_.following = {.rules = course.rules(),
                       .state = course.state(),
                       .steps = course.steps(),
                       .sequences_done = course.first_sample()};
}

void RunReporter::SayStart(const RunRank& rank) {
  const std::string mesh = options_.parallel.cuts() ? rank.mesh->ToString() : "";
  for (const std::string& line :
       StartLines(report_, context_.info.world_size, mesh, rank.activations.why)) {
    progress_.Announce(line);
  }
}

absl::Status RunReporter::SayStateDisk(const RunRank& rank) {
  if (!memory_words_.HasStateDiskToSay()) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(const zero::Statistics statistics, rank.model->engine().GetStatistics());
  memory_words_.SayStateDisk(statistics, &progress_);
  return absl::OkStatus();
}

// --- after a step --------------------------------------------------------------------------------

void RunReporter::AddStep(const TrainedStep& step, const BatchCourse& course) {
  report_.losses.push_back(step.loss);
  report_.gradient_norms.push_back(step.result.gradient_norm);
  report_.overflowed_steps += step.result.overflow ? 1 : 0;
  report_.step_seconds.push_back(step.seconds);
  if (report_.following) {
    AutoBatchReport& following = *report_.following;
    following.state = course.state();
    following.steps = course.steps();
    following.sequences_done = course.first_sample();
    following.step_micro_batches.push_back(step.micro_batches);
    if (step.change) following.changes.push_back(*step.change);
  }
  if (step.change) progress_.Announce(ChangeWords(*step.change));
  if (std::isfinite(step.loss) || ++report_.non_finite_losses > 1) return;
  report_.first_non_finite_step = report_.first_step + report_.losses.size();
  if (leads()) {
    progress_.Warn(DivergenceWords(report_.first_non_finite_step, options_.stop_on_nan));
  }
}

absl::Status RunReporter::SayMemory(const RunRank& rank) {
  memory_words_.SayRefused(rank.session->GetHostRegistration(), &progress_);
  return SayStateDisk(rank);
}

void RunReporter::Log(const TrainedStep& step) {
  if (!log_ || !log_status_.ok()) return;
  const StepRecord record = LastStepOf(report_, step.result, step.learning_rate);
  log_status_ = log_->Add(record);
  if (log_status_.ok()) return;
  progress_.Warn(absl::StrCat("geminid-train: the log ends before step ", record.step, ": ",
                              std::string(log_status_.message())));
}

absl::Status RunReporter::CheckLog() const {
  if (log_status_.ok()) return absl::OkStatus();
  return absl::Status(log_status_.code(),
                      absl::StrCat("the run's log has failed, which its end is to tell: ",
                                   std::string(log_status_.message())));
}

absl::Status RunReporter::ShowProgress(const RunRank& rank, const RunBatches& batches,
                                       const RunPhases& phases, const Validation* validation) {
  const absl::Time now = base::MonotonicNow();
  const uint64_t done = report_.first_step + report_.losses.size();
  const uint64_t steps = batches.course().steps();
  if (!progress_.Due(done, steps, now)) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(const zero::Statistics statistics, rank.model->engine().GetStatistics());
  ProgressSample sample =
      SampleOf(report_, statistics, absl::ToDoubleSeconds(now - training_began_));
  const uint64_t tokens = batches.tokens_of_step();
  sample.remaining = absl::Seconds(phases.RemainingSeconds(
      done, steps, static_cast<double>(tokens) / sample.tokens_per_second, tokens, validation));
  progress_.Show(sample, now);
  return absl::OkStatus();
}

// --- at the end ----------------------------------------------------------------------------------

absl::Status RunReporter::WriteReport(const RunRank& rank, const TrainEnd& end,
                                      const BatchAdvice& advice, RunPhases* phases) {
  // Whoever stops a run may kill it soon.
  const bool in_time = options_.weights_hash == WeightsHash::kAlways || end.signal == 0;
  if (!options_.report.empty() && options_.weights_hash != WeightsHash::kNever && in_time) {
    const InPhase phase = phases->Passing("hashing the weights");
    GEMINID_ASSIGN_OR_RETURN(report_.weights_sha256,
                             HashOfWeights(*rank.state, rank.model->parameters().size(), leads()));
  }
  GEMINID_RETURN_IF_ERROR(GatherRun(*rank.sums, *rank.model, *rank.session, &report_));
  if (!leads() || options_.report.empty()) return absl::OkStatus();
  report_.parameters = CountParameters(options_.model);
  report_.mesh = rank.mesh->ToString();
  report_.final_loss_scale = rank.model->engine().loss_scale();
  report_.advice = advice;
  if (end.is_early()) report_.ended_by = ByWhat(end);
  return base::ReplaceFile(options_.report, ToJson(report_));
}

void RunReporter::SayEnd(const TrainEnd& end, const std::string& saved_in,
                         const BatchAdvice& advice) {
  if (!leads()) return;
  progress_.Finish();
  if (options_.parallel.cuts()) progress_.Announce(TrafficTable(report_.traffic));
  if (const std::string words = AdviceWords(advice); !words.empty()) progress_.Announce(words);
  if (const std::string words = EndWords({report_, end, saved_in}); !words.empty()) WarnOnce(words);
}

}  // namespace geminid::trainer
