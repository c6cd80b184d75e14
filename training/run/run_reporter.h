// Prints and records the course of one rank's run: messages, progress line, log and report.
#ifndef GEMINID_TRAINING_RUN_RUN_REPORTER_H_
#define GEMINID_TRAINING_RUN_RUN_REPORTER_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "training/engines/validation.h"
#include "training/goodput/advice.h"
#include "training/logs/phase.h"
#include "training/logs/progress.h"
#include "training/logs/run_log.h"
#include "training/ranks/rank_session.h"
#include "training/ranks/ranks_place.h"
#include "training/ranks/run_end.h"
#include "training/run/memory_words.h"
#include "training/run/report.h"
#include "training/run/run_batches.h"
#include "training/run/run_phases.h"
#include "training/run/run_rank.h"
#include "training/run/step_trainer.h"
#include "training/settings/options.h"

namespace geminid::trainer {

class RunReporter {
 public:
  // Both outlive this object. `options` get the chosen mesh later.
  RunReporter(const TrainOptions& options, const RankContext& context);

  Report& report() { return report_; }
  const Report& report() const { return report_; }
  // These three are those of Progress.
  void Announce(const std::string& line) { progress_.Announce(line); }
  void Warn(const std::string& line) { progress_.Warn(line); }
  void Finish() { progress_.Finish(); }
  // Warns with the program's name in front, on the first rank alone.
  void WarnOnce(const std::string& words);
  // For PhaseTeller; null: this rank prints no phases.
  PhaseTeller::Write PhaseWriter();

  // --- before the first step ---

  absl::Status OpenLog();
  void SayMesh(const RunMesh& found);
  // Training begins.
  void Describe(const RunRank& rank, const RunBatches& batches);
  void SayStart(const RunRank& rank);
  absl::Status SayStateDisk(const RunRank& rank);

  // --- after a step ---

  // `course`: the position after the step.
  void AddStep(const TrainedStep& step, const BatchCourse& course);
  absl::Status SayMemory(const RunRank& rank);
  // If writing the log fails, a warning says so at once, and the run ends with that error after all
  // its other work.
  void Log(const TrainedStep& step);
  absl::Status ShowProgress(const RunRank& rank, const RunBatches& batches, const RunPhases& phases,
                            const Validation* validation);

  // --- at the end ---

  const absl::Status& log_status() const { return log_status_; }
  // The log's error, for ranks that end so that other ranks continue: they exit with 0, so only
  // this shows that the log failed.
  absl::Status CheckLog() const;
  // All ranks take part; the first writes.
  absl::Status WriteReport(const RunRank& rank, const TrainEnd& end, const BatchAdvice& advice,
                           RunPhases* phases);
  void SayEnd(const TrainEnd& end, const std::string& saved_in, const BatchAdvice& advice);

 private:
  bool leads() const { return context_.info.rank == 0; }

  const TrainOptions& options_;
  const RankContext& context_;
  Progress progress_;
  MemoryWords memory_words_;
  std::optional<RunLog> log_;
  absl::Status log_status_;
  Report report_;
  absl::Time training_began_ = absl::InfinitePast();
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RUN_RUN_REPORTER_H_
