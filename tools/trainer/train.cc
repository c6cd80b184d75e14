#include "tools/trainer/train.h"

#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/status_macros.h"
#include "client/src/session_internal.h"
#include "client/zero/engine/gradient_measure.h"
#include "geminid/communicator.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "kernels/runtime/parallel/tasks.h"
#include "proto/shm/batch_numbers.h"
#include "tools/trainer/checkpoints.h"
#include "tools/trainer/flags/data_flags.h"
#include "tools/trainer/flags/resumed_run.h"
#include "tools/trainer/flags/run_length.h"
#include "tools/trainer/flags/run_terms.h"
#include "training/data/batches.h"
#include "training/data/data_sum.h"
#include "training/engines/activation_choice.h"
#include "training/engines/trained_model.h"
#include "training/engines/validation.h"
#include "training/goodput/advice.h"
#include "training/logs/counted_state.h"
#include "training/models/initialization.h"
#include "training/ranks/end_watch.h"
#include "training/ranks/ranks_place.h"
#include "training/ranks/run_end.h"
#include "training/ranks/threads.h"
#include "training/run/run_batches.h"
#include "training/run/run_phases.h"
#include "training/run/run_rank.h"
#include "training/run/run_reporter.h"
#include "training/run/step_trainer.h"
#include "training/scaling/earlier_ranks.h"
#include "training/scaling/scaling.h"
#include "training/settings/accumulate_range.h"
#include "training/settings/device_need.h"
#include "training/settings/mesh_choice.h"
#include "training/settings/rank_share.h"

namespace geminid::trainer {
namespace {

double SecondsSince(absl::Time began) {
  return absl::ToDoubleSeconds(base::MonotonicNow() - began);
}

// The course of a rank's run, from what it prepares to how it ends.
class RankTrainer {
 public:
  RankTrainer(const TrainOptions& options, const RankContext& context)
      : options_(options),
        context_(context),
        reporter_(options_, context_),
        phases_(options_, reporter_.PhaseWriter()) {
    context_.on_wait = [this] { phases_.End(); };  // what a queued job waits for is said
    if (context_.check_ranks) {
      context_.check_ranks = [this, check = context_.check_ranks](int ranks) {
        GEMINID_RETURN_IF_ERROR(reporter_.CheckLog());
        GEMINID_RETURN_IF_ERROR(CheckSameFiles(options_, context_.data->listing()));
        return check(ranks);
      };
    }
  }

  absl::StatusOr<TrainEnd> Run() {
    phases_.Begin("waiting for the other ranks");
    GEMINID_ASSIGN_OR_RETURN(rank_.world, ConnectRanks(options_, context_));
    phases_.End();
    absl::Status status = RunConnected();  // it finds the number of threads
    status = WithDeviceAdvice(status, options_, context_.info.world_size,
                              static_cast<size_t>(reporter_.report().threads));
    phases_.End();
    reporter_.Finish();
    if (status.ok()) return end_->how();
    if (context_.on_failure) context_.on_failure(status);
    if (rank_.session != nullptr && context_.restarts.keeps()) rank_.session->LeaveToSuccessor();
    // Ranks that wait in either learn why, and not only that this one has left.
    const std::string why = absl::StrCat("rank ", rank(), ": ", std::string(status.message()));
    rank_.world->Abort(why);
    if (rank_.sums != nullptr) rank_.sums->Abort(why);
    return status;
  }

 private:
  int rank() const { return context_.info.rank; }
  uint64_t steps() const { return batches_->course().steps(); }

  absl::Status RunConnected() {
    GEMINID_RETURN_IF_ERROR(Prepare());
    const EndWatch watch = ExitAtEnd(
        *rank_.session, [this] { return checkpoints_->awaits_save(); }, options_.timeout,
        context_.write_stderr);
    GEMINID_RETURN_IF_ERROR(EndWithOtherData());
    GEMINID_RETURN_IF_ERROR(reporter_.OpenLog());
    SetNothingToSave(false);
    reporter_.Describe(rank_, *batches_);
    if (batches_->watch().measures()) zero::MeasureStepGradients(rank_.model->engine());
    GEMINID_RETURN_IF_ERROR(end_->Ask().status());  // agree on a stop before the first step
    reporter_.SayStart(rank_);
    GEMINID_RETURN_IF_ERROR(reporter_.SayStateDisk(rank_));
    const uint64_t first = reporter_.report().first_step;
    const bool is_last = first == steps() || end_->has_come();
    GEMINID_RETURN_IF_ERROR(checkpoints_->AfterResume(first, is_last, batches_->course().saved()));
    bool handed_over = false;
    if (const int fewer = context_.restarts.shrink_to; fewer > 0 && !is_last) {
      GEMINID_ASSIGN_OR_RETURN(handed_over, HandOver(fewer, checkpoints_->health()));
    }
    if (!handed_over) {
      GEMINID_ASSIGN_OR_RETURN(handed_over, TrainSteps(first));
    }
    if (handed_over) return reporter_.log_status();  // other ranks go on
    return Finish();
  }

  // A checkpoint that is due comes before the validation, which may take longer than whoever asks
  // for an end during it waits. True: the state is handed over.
  absl::StatusOr<bool> TrainSteps(uint64_t first) {
    StepTrainer trainer(options_, first, &rank_, &*batches_, &*end_, &*scaling_, &phases_);
    TrainedStep last;
    uint64_t done = first;
    while (done < steps() && !end_->has_come()) {
      GEMINID_ASSIGN_OR_RETURN(std::optional<TrainedStep> step, trainer.Train(done));
      if (!step) break;
      last = *std::move(step);
      ++done;
      reporter_.AddStep(last, batches_->course());
      if (last.result.wait_ended) GEMINID_RETURN_IF_ERROR(end_->Ask().status());  // why
      end_->NoteLoss(last.loss);
      GEMINID_RETURN_IF_ERROR(reporter_.SayMemory(rank_));
      GEMINID_RETURN_IF_ERROR(Save(done, last));
      GEMINID_RETURN_IF_ERROR(Validate(done));
      reporter_.Log(last);
      if (rank() == 0) {
        shm::StoreBatchNumbers(batches_->watch().Numbers(), CountersOf(*rank_.session));
      }
      GEMINID_RETURN_IF_ERROR(
          reporter_.ShowProgress(rank_, *batches_, phases_, validation_ ? &*validation_ : nullptr));
      scaling_->AfterStep(done - first, {.sequences = static_cast<double>(last.micro_batches) *
                                                      static_cast<double>(options_.batch),
                                         .seconds = last.seconds,
                                         .sequences_left = batches_->course().sequences_left()});
      if (end_->asked_ranks() == 0 || end_->has_come() || done == steps()) continue;
      GEMINID_ASSIGN_OR_RETURN(
          const bool handed_over,
          HandOver(end_->asked_ranks(), HealthOf(last.loss, last.result, options_)));
      if (handed_over) return true;
    }
    scaling_->Close();
    if (!end_->has_come()) return false;
    GEMINID_RETURN_IF_ERROR(
        done > first ? Save(done, last)
                     : checkpoints_->AfterResume(done, true, batches_->course().saved()));
    return false;
  }

  absl::Status Finish() {
    std::string saved_in;
    {
      const InPhase phase = phases_.Saving();
      GEMINID_ASSIGN_OR_RETURN(saved_in, checkpoints_->Finish());
    }
    const TrainEnd& end = end_->how();
    if (!end.is_early()) GEMINID_RETURN_IF_ERROR(Export());
    const BatchAdvice advice = batches_->watch().Advice();
    GEMINID_RETURN_IF_ERROR(reporter_.WriteReport(rank_, end, advice, &phases_));
    reporter_.SayEnd(end, saved_in, advice);
    if (end.no_data) return end_->NoData();
    const absl::Status& logged = reporter_.log_status();
    // Whoever ends well says for all ranks that nothing is left to be done.
    if (context_.restarts.comes_back()) {
      GEMINID_RETURN_IF_ERROR(AnyRank(*rank_.sums, false).status());
      if (context_.say_done && logged.ok() && !end.is_early()) context_.say_done();
    }
    return logged;
  }

  // Whether the state is handed over. A save that is under way is completed first.
  absl::StatusOr<bool> HandOver(int ranks, checkpoint::Health health) {
    const InPhase phase =
        phases_.Passing(absl::StrCat("handing the state over to ", base::Counted(ranks, "rank")));
    checkpoints_->AwaitSave();
    return scaling_->HandOver(ranks, batches_->course().saved(), health,
                              [this] { return end_->Ask(); });
  }

  // An earlier start of this run may have done so just before it died.
  absl::Status Export() {
    bool done = rank() == 0 && !context_.restarts.is_first() &&
                ::access(options_.export_to.c_str(), F_OK) == 0;
    if (!context_.restarts.is_first()) {
      GEMINID_ASSIGN_OR_RETURN(done, AnyRank(*rank_.sums, done));
    }
    if (options_.export_to.empty()) return absl::OkStatus();
    const InPhase phase = phases_.Passing(absl::StrCat("exporting to ", options_.export_to));
    return done ? absl::OkStatus() : checkpoints_->Export();
  }

  absl::Status Save(uint64_t done, const TrainedStep& step) {
    if (end_->how().diverged) return absl::OkStatus();  // --resume is to find what was good
    const bool last = done == steps() || end_->has_come();
    if (options_.save.empty()) return absl::OkStatus();
    const absl::Time began = base::MonotonicNow();
    const InPhase phase = phases_.Saving();  // the save before may take longer than the steps since
    absl::Status status = checkpoints_->AfterStep(done, last, batches_->course().saved(),
                                                  HealthOf(step.loss, step.result, options_));
    if (checkpoints_->saved() == done) phases_.SetSaveSeconds(SecondsSince(began));
    return status;
  }

  void SetNothingToSave(bool nothing) {
    if (context_.nothing_to_save) context_.nothing_to_save(nothing);
  }

  // Each rank reads the data by itself, and files may grow meanwhile.
  absl::Status AgreeOnData() {
    const auto mine = static_cast<double>(context_.data->tokens());
    std::vector<double> ends = {mine, -mine};
    GEMINID_RETURN_IF_ERROR(rank_.sums->AllReduce(ends, ends, collectives::ReduceOp::kMax));
    if (ends[0] == -ends[1]) return absl::OkStatus();
    const char* const unit = context_.data->unit();
    return absl::FailedPreconditionError(absl::StrFormat(
        "the ranks read different data, of %.0f to %.0f %s, and this one %.0f: its files changed "
        "meanwhile, or those of the hosts differ; start the run again when they are the same",
        -ends[1], ends[0], unit, mine));
  }

  // Notes the data with which the run begins, or compares it with what an earlier start noted.
  absl::Status SumData(RunTerms* terms) {
    if (rank() != 0 || (options_.save.empty() && !context_.run_memory.is_there())) {
      return absl::OkStatus();
    }
    phases_.Begin("hashing the data");
    GEMINID_ASSIGN_OR_RETURN(const std::string found, SumOfData(*context_.data));
    GEMINID_ASSIGN_OR_RETURN(std::string began_with, DataOfEarlierStart());
    if (began_with.empty()) began_with = found;
    if (context_.run_memory.is_there()) {
      GEMINID_RETURN_IF_ERROR(context_.run_memory.Keep(RunNote::kData, began_with));
    }
    if (began_with != found) {
      other_data_ = absl::FailedPreconditionError(
          absl::StrCat(DataFlagOf(options_), " is ", found, ", and was ", began_with,
                       ", when the run began; the next steps of this run would learn other data"));
    }
    (*terms)[kDataTerm] = std::move(began_with);
    (*terms)[kMeshTerm] = rank_.mesh->ToString();
    return absl::OkStatus();
  }

  // Ranks that another launcher starts again have no memory of the run but its checkpoints.
  absl::StatusOr<std::string> DataOfEarlierStart() const {
    if (context_.restarts.is_first()) return std::string();
    const RunMemory& memory = context_.run_memory;
    const std::string noted = memory.is_there() ? memory.Kept(RunNote::kData) : "";
    if (!noted.empty() || options_.save.empty()) return noted;
    GEMINID_ASSIGN_OR_RETURN(const std::optional<ResumedRun> saved, FindResumed(options_.save));
    const auto found = saved ? saved->run.terms.find(kDataTerm) : RunTerms::const_iterator();
    return saved && found != saved->run.terms.end() ? found->second : "";
  }

  // A run that started again and found other data saves what its ranks left, and ends.
  absl::Status EndWithOtherData() {
    if (context_.restarts.is_first()) return absl::OkStatus();
    GEMINID_ASSIGN_OR_RETURN(const bool is_other, AnyRank(*rank_.sums, !other_data_.ok()));
    if (!is_other) return absl::OkStatus();
    GEMINID_RETURN_IF_ERROR(checkpoints_->AfterResume(reporter_.report().first_step, /*last=*/true,
                                                      batches_->course().saved()));
    GEMINID_RETURN_IF_ERROR(checkpoints_->Finish().status());
    if (other_data_.ok()) return absl::AbortedError("the first rank found other data");
    return absl::FailedPreconditionError(absl::StrCat(
        std::string(other_data_.message()), "; restore the data, and ",
        options_.save.empty() ? "begin anew: without --save the steps so far are lost"
                              : absl::StrCat("go on from ", options_.save, " with --resume")));
  }

  absl::Status PrepareData() {
    GEMINID_RETURN_IF_ERROR(AgreeOnData());
    const BatchPlan plan = ShareOf(options_, *rank_.mesh, rank()).batch;
    GEMINID_ASSIGN_OR_RETURN(
        const Split split,
        SplitTokens(*context_.data, options_.validation_share, options_.model.context));
    GEMINID_ASSIGN_OR_RETURN(Batches batches, Batches::Create(split.training, plan));
    batches_.emplace(options_, context_.info.world_size, std::move(batches));
    if (options_.validation_share == 0) return absl::OkStatus();
    GEMINID_ASSIGN_OR_RETURN(validation_,
                             Validation::Create(split.held_out, plan, options_.validation_every,
                                                options_.validation_batches));
    reporter_.report().validation_tokens = validation_->tokens();
    return absl::OkStatus();
  }

  absl::Status Prepare() {
    RunTerms terms = TermsOf(options_);  // as the flags say them, whatever mesh is chosen
    GEMINID_ASSIGN_OR_RETURN(rank_.threads,
                             MakeThreads(options_.threads, context_.info, *rank_.world));
    const size_t threads = kernels::ThreadsOf(rank_.threads.get());
    reporter_.report().threads = threads;
    GEMINID_RETURN_IF_ERROR(FindMesh(threads));
    GEMINID_ASSIGN_OR_RETURN(rank_.sums, rank_.world->Duplicate("trainer"));
    GEMINID_RETURN_IF_ERROR(PrepareData());
    SetNothingToSave(false);  // who waits in the daemon's queue says for what it did
    phases_.BeginToRegister();
    GEMINID_RETURN_IF_ERROR(EndEarlierRanks(options_, context_));
    GEMINID_ASSIGN_OR_RETURN(rank_.session,
                             ConnectToTrain(options_, context_, threads, rank_.Stage()));
    SetNothingToSave(context_.restarts.is_first());
    phases_.Begin("registering the model's host memory");
    end_.emplace(rank_.sums.get(), rank_.session.get(), context_.stop_signal, options_.stop_on_nan);
    GEMINID_ASSIGN_OR_RETURN(rank_.model,
                             TrainedModel::Create({.options = options_,
                                                   .mesh = *rank_.mesh,
                                                   .world = *rank_.world,
                                                   .session = *rank_.session,
                                                   .threads = rank_.threads.get(),
                                                   .resumes = context_.restarts.may_resume()}));
    const std::vector<zero::Parameter>& parameters = rank_.model->parameters();
    rank_.state = std::make_unique<CountedState>(&rank_.model->state(), parameters);
    phases_.SetState(rank_.state.get());
    GEMINID_RETURN_IF_ERROR(SumData(&terms));
    phases_.Begin("looking at the checkpoints");
    const auto warn = [this](const std::string& line) { reporter_.Warn(line); };
    GEMINID_ASSIGN_OR_RETURN(
        checkpoints_,
        Checkpoints::Create(options_, rank_.state.get(), rank_.world.get(), parameters,
                            std::move(terms), !context_.restarts.is_first(), warn));
    scaling_.emplace(options_, context_, rank_.session.get(), rank_.world.get(), rank_.state.get(),
                     &parameters, warn);
    scaling_->ChargeInheritedState();
    phases_.Begin("measuring what recomputing costs");
    GEMINID_RETURN_IF_ERROR(DecideOnActivations());
    const absl::Status begun = BeginValues();
    phases_.End();
    return begun;
  }

  absl::Status FindMesh(size_t threads) {
    phases_.Begin(options_.parallel.automatic ? "choosing --parallel" : "agreeing on the mesh");
    GEMINID_ASSIGN_OR_RETURN(RunMesh found,
                             FindRunMesh(std::move(options_), threads, context_, *rank_.world));
    options_ = std::move(found.options);
    rank_.mesh = std::move(found.mesh);
    reporter_.SayMesh(found);
    return absl::OkStatus();
  }

  absl::Status DecideOnActivations() {
    Report& report = reporter_.report();
    const std::optional<bool> planned =
        report.choice ? report.choice->keeps_activations : std::nullopt;
    GEMINID_ASSIGN_OR_RETURN(
        rank_.activations,
        PrepareActivations(options_, {.stage = rank_.Stage(), .planned_to_keep = planned},
                           static_cast<size_t>(report.threads), *rank_.sums, rank_.model.get()));
    report.activations = rank_.activations.how;
    return absl::OkStatus();
  }

  absl::Status BeginValues() {
    const absl::Time began = base::MonotonicNow();
    const std::vector<ParameterSpec> specs = MakeParameters(options_.model).specs;
    phases_.BeginValues();
    GEMINID_ASSIGN_OR_RETURN(const Checkpoints::StartPoint start_point,
                             checkpoints_->Begin(
                                 [&](zero::ParameterId id, std::span<float> values) {
                                   Fill(specs[static_cast<size_t>(id)], options_.seed, 0, values);
                                   return absl::OkStatus();
                                 },
                                 [this] { return scaling_->TakeOver(); },
                                 [this](uint64_t step, const checkpoint::RunState& saved) {
                                   return batches_->GoOn(step, saved);
                                 }));
    Report& report = reporter_.report();
    report.first_step = start_point.step;
    if (!start_point.from.empty()) report.load_seconds = SecondsSince(began);
    if (!context_.restarts.is_first()) {
      reporter_.Announce(
          DescribeStart(context_.restarts,
                        {rank_.model->state().resumed().has_value(), start_point.step,
                         start_point.from, scaling_->ranks_before()},
                        base::MonotonicNow()));
    } else if (!start_point.from.empty()) {
      reporter_.Announce(
          absl::StrCat(start_point.step > 0 ? "goes on from " : "begins with ", start_point.from));
    }
    if (!start_point.notes.empty()) {
      reporter_.WarnOnce(absl::StrCat("goes on from ", start_point.from, ": ", start_point.notes));
    }
    if (start_point.step == steps()) {
      reporter_.WarnOnce(absl::StrCat("step ", steps(), " of ", steps(),
                                      " was reached before, so no step is left to train"));
    }
    return absl::OkStatus();
  }

  absl::Status Validate(uint64_t done) {
    if (!validation_ || end_->has_come() || !validation_->Due(done, steps())) {
      return absl::OkStatus();
    }
    const absl::Time began = base::MonotonicNow();
    const InPhase phase = phases_.Validating(validation_->micro_batches());
    const auto evaluate = [this](const MicroBatch& batch) {
      phases_.CountMicroBatch();
      return rank_.model->Evaluate(batch);
    };
    GEMINID_ASSIGN_OR_RETURN(
        const std::optional<double> mine,
        validation_->Run(
            evaluate, [this] { return end_->Ask(); }, options_.parallel.pipeline));
    if (!mine.has_value()) return absl::OkStatus();
    phases_.SetValidationSeconds(SecondsSince(began));
    std::vector<double> sum = {*mine, static_cast<double>(validation_->right().value_or(0))};
    GEMINID_RETURN_IF_ERROR(rank_.sums->AllReduce(sum, sum, collectives::ReduceOp::kSum));
    const auto targets = static_cast<double>(validation_->targets());
    ValidationLoss& measured = reporter_.report().validation.emplace_back();
    measured = {.step = done, .loss = sum[0] / targets};
    if (validation_->right()) measured.accuracy = sum[1] / targets;
    return absl::OkStatus();
  }

  TrainOptions options_;  // once the ranks have met, with the mesh that was chosen
  RankContext context_;
  RunReporter reporter_;
  RunRank rank_;
  absl::Status other_data_;  // what differs from the run's; of the first rank
  std::optional<RunBatches> batches_;
  std::optional<Validation> validation_;
  std::optional<RunEnd> end_;
  std::unique_ptr<Checkpoints> checkpoints_;
  std::optional<Scaling> scaling_;
  RunPhases phases_;  // destroyed first: it asks the others how far they are
};

}  // namespace

absl::StatusOr<TrainEnd> TrainAsRank(const TrainOptions& options, const RankContext& context) {
  GEMINID_RETURN_IF_ERROR(CheckAccumulateRange(options, context.info.world_size));
  GEMINID_ASSIGN_OR_RETURN(const TrainOptions run, WithStepsOf(options, *context.data));
  return RankTrainer(run, context).Run();
}

}  // namespace geminid::trainer
