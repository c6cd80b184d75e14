#include "tools/trainer/train.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "client/src/session_internal.h"
#include "client/zero/engine/gradient_measure.h"
#include "client/zero/state/disk_spent.h"
#include "geminid/communicator.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "kernels/runtime/parallel/tasks.h"
#include "proto/shm/batch_numbers.h"
#include "tools/trainer/checkpoints.h"
#include "tools/trainer/flags/run_length.h"
#include "tools/trainer/flags/run_terms.h"
#include "training/data/batches.h"
#include "training/data/data_sum.h"
#include "training/engines/activation_choice.h"
#include "training/engines/trained_model.h"
#include "training/engines/validation.h"
#include "training/goodput/advice.h"
#include "training/goodput/follow_noise.h"
#include "training/launch/stop_signals.h"
#include "training/logs/counted_state.h"
#include "training/logs/run_log.h"
#include "training/models/initialization.h"
#include "training/ranks/end_agreement.h"
#include "training/ranks/ranks_place.h"
#include "training/ranks/threads.h"
#include "training/run/batch_course.h"
#include "training/run/batch_watch.h"
#include "training/run/end_words.h"
#include "training/run/gather_report.h"
#include "training/run/report.h"
#include "training/run/run_phases.h"
#include "training/run/start_lines.h"
#include "training/scaling/scaling.h"
#include "training/settings/accumulate_range.h"
#include "training/settings/device_need.h"
#include "training/settings/idle_flags.h"
#include "training/settings/mesh_choice.h"
#include "training/settings/rank_share.h"

namespace geminid::trainer {
namespace {

// In the report, of a run that ended early.
std::string ByWhat(const TrainEnd& end) {
  if (end.signal != 0) return SignalName(end.signal);
  return end.spent ? "endurance" : "nan";
}

using SteadyClock = std::chrono::steady_clock;

double SecondsSince(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

class RankTrainer {
 public:
  RankTrainer(const TrainOptions& options, const RankContext& context)
      : options_(options),
        terms_(TermsOf(options)),
        context_(context),
        progress_(rank() != 0        ? ProgressMode::kNone
                  : options.progress ? *options.progress
                                     : (context.stderr_is_terminal ? ProgressMode::kTerminal
                                                                   : ProgressMode::kLines),
                  context.write_stderr, context.terminal_width),
        phases_(options_, rank() == 0 && options.progress != ProgressMode::kNone
                              ? [this](const std::string& line) { progress_.Warn(line); }
                              : PhaseTeller::Write()) {
    context_.on_wait = [this] { phases_.End(); };  // what a queued job waits for is said
    if (context_.check_ranks) {
      context_.check_ranks = [this, check = context_.check_ranks](int ranks) {
        GEMINID_RETURN_IF_ERROR(CheckLog());
        return check(ranks);
      };
    }
  }

  absl::StatusOr<TrainEnd> Run() {
    phases_.Begin("waiting for the other ranks");
    GEMINID_ASSIGN_OR_RETURN(communicator_, ConnectRanks(options_, context_));
    phases_.End();
    absl::Status status = WithDeviceAdvice(RunConnected(), options_, context_.info.world_size,
                                           static_cast<size_t>(report_.threads));
    phases_.End();
    progress_.Finish();
    if (status.ok()) return end_;
    if (context_.on_failure) context_.on_failure(status);
    if (session_ != nullptr && context_.restarts.keeps()) session_->LeaveToSuccessor();
    communicator_->Abort(absl::StrCat("rank ", rank(), ": ", std::string(status.message())));
    return status;
  }

 private:
  int rank() const { return context_.info.rank; }
  int Stage() const { return mesh_->Coordinate(rank(), kPipelineAxis); }
  bool ends() const { return end_.is_early(); }
  uint64_t steps() const { return course_->steps(); }

  absl::Status RunConnected() {
    GEMINID_RETURN_IF_ERROR(Prepare());
    GEMINID_RETURN_IF_ERROR(OpenLog());
    SetNothingToSave(false);
    DescribeRun(options_, *model_, *session_, &report_);
    report_.data = context_.data->listing();
    report_.tokens_per_step = batches_->tokens_per_step();
    report_.samples_per_epoch = batches_->samples_per_epoch();
    SayNotes();
    watch_.emplace(options_, context_.info.world_size);
    if (course_->follows_noise()) {
      watch_->SetMicroBatches(MicroBatchesOf(course_->rules(), course_->state()));
      report_.following = {.rules = course_->rules(),
                           .state = course_->state(),
                           .steps = steps(),
                           .sequences_done = course_->first_sample()};
    }
    if (watch_->measures()) zero::MeasureStepGradients(model_->engine());
    training_began_ = SteadyClock::now();
    GEMINID_RETURN_IF_ERROR(AddOverRanks(0).status());  // agree on a stop before the first step
    for (const std::string& line : StartLines({.report = report_,
                                   .ranks = context_.info.world_size,
                                   .mesh = options_.parallel.cuts() ? mesh_->ToString() : "",
                                   .why_activations = activations_.why})) {
      progress_.Announce(line);
    }
    GEMINID_RETURN_IF_ERROR(SayStateDisk());
    const uint64_t first = report_.first_step;
    const bool is_last = first == steps() || ends();
    GEMINID_RETURN_IF_ERROR(checkpoints_->AfterResume(first, is_last, course_->saved()));
    if (const int fewer = context_.restarts.shrink_to; fewer > 0 && !is_last) {
      GEMINID_RETURN_IF_ERROR(HandOver(fewer, first));
    }
    if (!handed_over_) GEMINID_RETURN_IF_ERROR(TrainSteps(first));
    if (handed_over_) return log_status_;  // other ranks go on
    {
      const InPhase phase = phases_.Saving();
      GEMINID_ASSIGN_OR_RETURN(saved_in_, checkpoints_->Finish());
    }
    if (!ends()) GEMINID_RETURN_IF_ERROR(Export());
    GEMINID_RETURN_IF_ERROR(FinishReport());
    SayEnd();
    // Whoever ends well says for all ranks that nothing is left to be done.
    if (context_.restarts.comes_back()) {
      GEMINID_RETURN_IF_ERROR(AnyRank(*loss_communicator_, false).status());
      if (context_.say_done && log_status_.ok() && !ends()) context_.say_done();
    }
    return log_status_;
  }

  // A checkpoint that is due comes before the validation, which may take longer than whoever asks
  // for an end during it waits.
  absl::Status TrainSteps(uint64_t first) {
    uint64_t done = first;
    while (done < steps() && !ends()) {
      GEMINID_ASSIGN_OR_RETURN(const bool trained, TrainStep(done));
      if (!trained) break;
      ++done;
      if (last_step_.wait_ended) GEMINID_RETURN_IF_ERROR(AddOverRanks(0).status());  // why
      NoteLoss(done);
      SayRefusedMemory();
      GEMINID_RETURN_IF_ERROR(SayStateDisk());
      GEMINID_RETURN_IF_ERROR(Save(done));
      GEMINID_RETURN_IF_ERROR(Validate(done));
      Log(done);
      if (rank() == 0) shm::StoreBatchNumbers(watch_->Numbers(), CountersOf(*session_));
      GEMINID_RETURN_IF_ERROR(ShowProgress(done));
      scaling_->AfterStep(done - first);
      if (agreement_->asked() == 0 || ends() || done == steps()) continue;
      GEMINID_RETURN_IF_ERROR(HandOver(agreement_->asked(), done));
      if (handed_over_) return absl::OkStatus();
    }
    scaling_->Refuse(absl::CancelledError("the run ends"));
    if (!ends()) return absl::OkStatus();
    return done > first ? Save(done) : checkpoints_->AfterResume(done, true, course_->saved());
  }

  // A save that is under way is completed first.
  absl::Status HandOver(int ranks, uint64_t done) {
    const InPhase phase =
        phases_.Passing(absl::StrCat("handing the state over to ", ranks, " ranks"));
    checkpoints_->AwaitSave(done);
    GEMINID_ASSIGN_OR_RETURN(
        handed_over_, scaling_->HandOver(ranks, course_->saved(), [this] { return AskForEnd(); }));
    return absl::OkStatus();
  }

  // An earlier start of this run may have done so just before it died.
  absl::Status Export() {
    bool done = rank() == 0 && !context_.restarts.is_first() &&
                ::access(options_.export_to.c_str(), F_OK) == 0;
    if (!context_.restarts.is_first()) {
      GEMINID_ASSIGN_OR_RETURN(done, AnyRank(*loss_communicator_, done));
    }
    if (options_.export_to.empty()) return absl::OkStatus();
    const InPhase phase = phases_.Passing(absl::StrCat("exporting to ", options_.export_to));
    return done ? absl::OkStatus() : checkpoints_->Export();
  }

  absl::Status OpenLog() {
    if (rank() != 0) return absl::OkStatus();
    GEMINID_ASSIGN_OR_RETURN(
        log_, RunLog::Open({.lines = options_.log,
                            .tensorboard = options_.tensorboard,
                            .appends = options_.resume || !context_.restarts.is_first()},
                           base::WallClockNow()));
    return absl::OkStatus();
  }

  // A log that fails is said at once, and is the run's error when all else is done.
  void Log(uint64_t done) {
    if (!log_ || !log_status_.ok()) return;
    const StepRecord record = LastStepOf(report_, last_step_, last_rate_);
    log_status_ = log_->Add(record);
    if (log_status_.ok()) return;
    progress_.Warn(absl::StrCat("geminid-train: the log ends before step ", done, ": ",
                                std::string(log_status_.message())));
  }

  // Ranks that end for others end well, so nobody would learn how the log failed.
  absl::Status CheckLog() const {
    if (log_status_.ok()) return absl::OkStatus();
    return absl::Status(log_status_.code(),
                        absl::StrCat("the run's log has failed, which its end is to tell: ",
                                     std::string(log_status_.message())));
  }

  absl::Status Save(uint64_t done) {
    if (end_.diverged) return absl::OkStatus();  // --resume is to find what was good
    const bool last = done == steps() || ends();
    if (options_.save.empty()) return absl::OkStatus();
    const auto began = SteadyClock::now();
    const InPhase phase = phases_.Saving();  // the save before may take longer than the steps since
    const checkpoint::Health health = HealthOf(report_.losses.back(), last_step_, options_);
    absl::Status status = checkpoints_->AfterStep(done, last, course_->saved(), health);
    if (checkpoints_->saved() == done) phases_.SetSaveSeconds(SecondsSince(began));
    return status;
  }

  absl::StatusOr<double> AddOverRanks(double loss) {
    GEMINID_ASSIGN_OR_RETURN(const double sum, agreement_->Add(loss));
    end_.signal = agreement_->signal();
    return sum;
  }

  // Whether some rank was asked to end.
  absl::StatusOr<bool> AskForEnd() {
    GEMINID_RETURN_IF_ERROR(AddOverRanks(0).status());
    return ends();
  }

  void SetNothingToSave(bool nothing) {
    if (context_.nothing_to_save) context_.nothing_to_save(nothing);
  }

  // Of a GPU that does not page-lock host memory: copies work, at a fraction of their speed.
  void SayRefusedMemory() {
    const HostRegistration host = session_->GetHostRegistration();
    if (host.refused_bytes == 0 || said_refused_) return;
    said_refused_ = true;
    progress_.Warn(RefusedMemoryWords(rank(), host));
  }

  // At first how state on disk is read and written; later that its endurance is nearly spent.
  absl::Status SayStateDisk() {
    const bool has_limit = options_.zero.state_disk.endurance_bytes > 0 && !said_endurance_;
    if (options_.zero.state_placement != zero::StatePlacement::kDisk ||
        (said_disk_ && !has_limit)) {
      return absl::OkStatus();
    }
    GEMINID_ASSIGN_OR_RETURN(const zero::Statistics statistics, model_->engine().GetStatistics());
    if (!std::exchange(said_disk_, true)) SayHowStateIsOnDisk(statistics.state_disk);
    const std::string words = DiskEnduranceWords(rank(), statistics.disk_written_bytes,
                                                 options_.zero.state_disk.endurance_bytes);
    if (!words.empty() && !std::exchange(said_endurance_, true)) progress_.Warn(words);
    return absl::OkStatus();
  }

  // Of each host, whose disks may be others.
  void SayHowStateIsOnDisk(const std::string& how) {
    if (rank() == 0 && how.empty()) {
      progress_.Warn(
          "geminid-train: --state-disk does nothing: this optimizer has no state beside the "
          "weights");
    } else if (rank() == 0) {
      progress_.Announce(absl::StrCat("optimizer state on ", how));
    } else if (context_.info.local_rank == 0 && context_.info.local_world_size > 0) {
      progress_.Warn(absl::StrCat("rank ", rank(), ": optimizer state on ", how));
    }
  }

  // Those of the command line were said when it was read.
  void SayNotes() {
    for (const std::string& note : IdleFlags(options_, report_.samples_per_epoch)) {
      report_.notes.push_back(note);
      if (rank() == 0) progress_.Warn(absl::StrCat("geminid-train: ", note));
    }
  }

  void NoteLoss(uint64_t step) {
    if (std::isfinite(report_.losses.back())) return;
    if (++report_.non_finite_losses == 1) {
      report_.first_non_finite_step = step;
      if (rank() == 0) progress_.Warn(DivergenceWords(step, options_.stop_on_nan));
    }
    end_.diverged = options_.stop_on_nan && end_.signal == 0;
  }

  void SayEnd() {
    if (rank() != 0) return;
    progress_.Finish();
    if (options_.parallel.cuts()) progress_.Announce(TrafficTable(report_.traffic));
    if (const std::string advice = AdviceWords(watch_->Advice()); !advice.empty()) {
      progress_.Announce(advice);
    }
    const std::string words = EndWords({report_, end_, saved_in_});
    if (words.empty()) return;
    progress_.Warn(absl::StrCat("geminid-train: ", words));
  }

  absl::Status PrepareData() {
    const BatchPlan plan = ShareOf(options_, *mesh_, rank()).batch;
    GEMINID_ASSIGN_OR_RETURN(
        const Split split,
        SplitTokens(*context_.data, options_.validation_share, options_.model.context));
    GEMINID_ASSIGN_OR_RETURN(batches_, Batches::Create(split.training, plan));
    course_.emplace(options_, context_.info.world_size);
    if (options_.validation_share == 0) return absl::OkStatus();
    GEMINID_ASSIGN_OR_RETURN(validation_,
                             Validation::Create(split.held_out, plan, options_.validation_every,
                                                options_.validation_batches));
    report_.validation_tokens = validation_->tokens();
    return absl::OkStatus();
  }

  absl::Status Prepare() {
    GEMINID_ASSIGN_OR_RETURN(threads_,
                             MakeThreads(options_.threads, context_.info, *communicator_));
    report_.threads = kernels::ThreadsOf(threads_.get());
    GEMINID_RETURN_IF_ERROR(FindMesh());
    GEMINID_ASSIGN_OR_RETURN(loss_communicator_, communicator_->Duplicate("trainer"));
    GEMINID_RETURN_IF_ERROR(PrepareData());
    SetNothingToSave(false);  // who waits in the daemon's queue says for what it did
    phases_.BeginToRegister();
    GEMINID_RETURN_IF_ERROR(EndEarlierRanks(options_, context_));
    GEMINID_ASSIGN_OR_RETURN(session_,
                             ConnectToTrain(options_, context_, report_.threads, Stage()));
    SetNothingToSave(context_.restarts.is_first());
    phases_.Begin("registering the model's host memory");
    agreement_.emplace(loss_communicator_.get(), session_.get(), context_.stop_signal);
    GEMINID_ASSIGN_OR_RETURN(model_,
                             TrainedModel::Create({.options = options_,
                                                   .mesh = *mesh_,
                                                   .world = *communicator_,
                                                   .session = *session_,
                                                   .threads = threads_.get(),
                                                   .resumes = !context_.restarts.is_first()}));
    state_ = std::make_unique<CountedState>(&model_->state(), model_->parameters());
    phases_.SetState(state_.get());
    if (rank() == 0 && !options_.save.empty()) {
      phases_.Begin("hashing the data");
      GEMINID_ASSIGN_OR_RETURN(terms_[kDataTerm], SumOfData(*context_.data));
      terms_[kMeshTerm] = mesh_->ToString();
    }
    phases_.Begin("looking at the checkpoints");
    GEMINID_ASSIGN_OR_RETURN(
        checkpoints_,
        Checkpoints::Create(options_, state_.get(), communicator_.get(), model_->parameters(),
                            terms_, !context_.restarts.is_first(),
                            [this](const std::string& line) { progress_.Warn(line); }));
    scaling_.emplace(options_, context_, session_.get(), communicator_.get(), state_.get(),
                     &model_->parameters(),
                     [this](const std::string& line) { progress_.Warn(line); });
    scaling_->ChargeWhatIsLeft();
    phases_.Begin("measuring what recomputing costs");
    GEMINID_RETURN_IF_ERROR(DecideOnActivations());
    const absl::Status begun = BeginValues();
    phases_.End();
    return begun;
  }

  absl::Status FindMesh() {
    phases_.Begin(options_.parallel.automatic ? "choosing --parallel" : "agreeing on the mesh");
    GEMINID_ASSIGN_OR_RETURN(
        RunMesh found, FindRunMesh(std::move(options_), report_.threads, context_, *communicator_));
    options_ = std::move(found.options);
    mesh_ = std::move(found.mesh);
    report_.choice = std::move(found.choice);
    report_.mesh_warning = std::move(found.warning);
    if (report_.choice) progress_.Announce(absl::StrCat("parallel auto: ", report_.choice->why));
    if (rank() == 0 && !report_.mesh_warning.empty()) {
      progress_.Warn(absl::StrCat("geminid-train: ", report_.mesh_warning));
    }
    return absl::OkStatus();
  }

  absl::Status DecideOnActivations() {
    const std::optional<bool> planned =
        report_.choice ? report_.choice->keeps_activations : std::nullopt;
    GEMINID_ASSIGN_OR_RETURN(
        activations_, PrepareActivations(options_, {.stage = Stage(), .planned_to_keep = planned},
                                         report_.threads, *loss_communicator_, model_.get()));
    report_.activations = activations_.how;
    return absl::OkStatus();
  }

  absl::Status BeginValues() {
    const auto began = SteadyClock::now();
    const std::vector<ParameterSpec> specs = MakeParameters(options_.model).specs;
    phases_.BeginValues();
    GEMINID_ASSIGN_OR_RETURN(const Checkpoints::Beginning beginning,
                             checkpoints_->Begin(
                                 [&](zero::ParameterId id, std::span<float> values) {
                                   Fill(specs[static_cast<size_t>(id)], options_.seed, 0, values);
                                   return absl::OkStatus();
                                 },
                                 [this] { return scaling_->TakeOver(); },
                                 [this](uint64_t step, const checkpoint::RunState& saved) {
                                   return course_->GoOn(step, saved);
                                 }));
    report_.first_step = beginning.step;
    if (!beginning.from.empty()) report_.load_seconds = SecondsSince(began);
    if (!context_.restarts.is_first()) {
      progress_.Announce(DescribeStart(context_.restarts,
                                       {model_->state().resumed().has_value(), beginning.step,
                                        beginning.from, scaling_->ranks_before()},
                                       base::MonotonicNow()));
    } else if (!beginning.from.empty()) {
      progress_.Announce(
          absl::StrCat(beginning.step > 0 ? "goes on from " : "begins with ", beginning.from));
    }
    if (rank() == 0 && !beginning.notes.empty()) {
      progress_.Warn(
          absl::StrCat("geminid-train: goes on from ", beginning.from, ": ", beginning.notes));
    }
    if (rank() == 0 && beginning.step == steps()) {
      progress_.Warn(absl::StrCat("geminid-train: step ", steps(), " of ", steps(),
                                  " was reached before, so no step is left to train"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<MicroBatch> GetBatch(uint64_t step, uint64_t micro_batch) {
    phases_.BeginMicroBatch(step == report_.first_step, step, micro_batch,
                            course_->micro_batches());
    watch_->BeginMicroBatch(base::MonotonicNow());
    const auto waits = base::MonotonicNow();
    GEMINID_ASSIGN_OR_RETURN(MicroBatch batch, batches_->GetFrom(course_->first_sample() +
                                                                 micro_batch * options_.batch));
    batch.dropout.share = options_.dropout;
    batch.dropout.seed = options_.seed;
    batch.keeps_activations = activations_.keeps();
    batch.stack = model_->stack();
    session_->AddStall(StallCause::kData, base::MonotonicNow() - waits);
    return batch;
  }

  // The step's batch; CANCELLED where the step is to be given up. The stages of a pipeline have
  // several at once, and complete the step.
  absl::StatusOr<MicroBatch> GetNextBatch(uint64_t step, uint64_t micro_batch) {
    if (micro_batch > 0 && options_.parallel.pipeline == 1) {
      GEMINID_ASSIGN_OR_RETURN(const bool end, AskForEnd());
      if (end) return absl::CancelledError("the step is given up");
    }
    return GetBatch(step, micro_batch);
  }

  // False: an end was asked for, and the step has been given up.
  absl::StatusOr<bool> TrainStep(uint64_t step) {
    const auto began = SteadyClock::now();
    const double rate = last_rate_ = course_->learning_rate();
    const uint64_t tokens = course_->micro_batches() * options_.batch * options_.model.context;
    if (course_->follows_noise()) model_->SetMicroBatches(course_->micro_batches());
    watch_->BeginStep(WaitedForUpdates());
    if (const absl::Status begun = model_->engine().BeginStep({.learning_rate = rate});
        !begun.ok()) {
      return GiveUpStep(begun);
    }
    // The engine takes the mean of the gradients over micro-batches and ranks.
    const float gradient_scale = static_cast<float>(model_->engine().loss_scale()) /
                                 static_cast<float>(batches_->tokens_per_micro_batch());
    const auto get = [&](uint64_t micro_batch) { return GetNextBatch(step, micro_batch); };
    const absl::StatusOr<double> my_loss = model_->TrainMicroBatches(get, gradient_scale);
    if (absl::IsCancelled(my_loss.status()) && ends()) {
      GEMINID_RETURN_IF_ERROR(model_->engine().CancelMicroBatch());
      return false;
    }
    GEMINID_RETURN_IF_ERROR(my_loss.status());
    watch_->EndMicroBatches(base::MonotonicNow(), WaitedForUpdates());
    agreement_->Ask(scaling_->Poll(base::MonotonicNow()));
    GEMINID_ASSIGN_OR_RETURN(const double loss_sum, AddOverRanks(*my_loss));
    GEMINID_ASSIGN_OR_RETURN(const StepEnd end, EndOfStep());
    const checkpoint::RunState run = end.course.saved();
    const absl::StatusOr<zero::StepResult> stepped =
        model_->Step({.learning_rate = rate,
                      .data_position = run.data_position,
                      .random_state = run.random_state});
    if (!stepped.ok()) return GiveUpStep(stepped.status());
    const zero::StepResult& result = *stepped;
    GoOnAfter(end);
    report_.losses.push_back(loss_sum / static_cast<double>(tokens));
    report_.gradient_norms.push_back(result.gradient_norm);
    report_.overflowed_steps += result.overflow ? 1 : 0;
    last_step_ = result;
    report_.step_seconds.push_back(SecondsSince(began));
    watch_->EndStep(zero::NewestStepGradients(model_->engine()), report_.step_seconds.back());
    phases_.End();
    return true;
  }

  // False where the step is refused on all ranks, since it would write more to disk than one of
  // them may: the run ends before it. Else what was wrong.
  absl::StatusOr<bool> GiveUpStep(const absl::Status& refused) {
    if (!zero::IsDiskSpent(refused)) return refused;
    GEMINID_RETURN_IF_ERROR(model_->engine().CancelMicroBatch());
    end_.spent = true;
    return false;
  }

  // Where the run stands after this step, which the engine commits with it. The gradients are known
  // before the update, which a rank may not survive.
  struct StepEnd {
    BatchCourse course;
    std::optional<BatchChange> change;
  };
  absl::StatusOr<StepEnd> EndOfStep() {
    StepEnd end = {.course = *course_, .change = std::nullopt};
    zero::StepGradients gradients;
    std::optional<double> cost;
    if (course_->follows_noise()) {
      GEMINID_RETURN_IF_ERROR(model_->engine().GradientNorm().status());
      gradients = zero::NewestStepGradients(model_->engine());
    }
    if (course_->NeedsUpdateCost()) {
      GEMINID_ASSIGN_OR_RETURN(cost, CostOfUpdates(watch_->Times(), *loss_communicator_));
    }
    end.change = end.course.EndStep(gradients, cost);
    return end;
  }

  // The step is committed.
  void GoOnAfter(const StepEnd& end) {
    const uint64_t micro_batches = course_->micro_batches();
    course_.emplace(end.course);
    if (!course_->follows_noise()) return;
    BatchFollowing& following = *report_.following;
    following.state = course_->state();
    following.steps = steps();
    following.sequences_done = course_->first_sample();
    following.step_micro_batches.push_back(micro_batches);
    if (!end.change) return;
    following.changes.push_back(*end.change);
    watch_->SetMicroBatches(end.change->to);
    progress_.Announce(ChangeWords(*end.change));
  }

  absl::Duration WaitedForUpdates() const {
    return session_->Stalls()[static_cast<size_t>(StallCause::kUpdate)];
  }

  absl::Status Validate(uint64_t done) {
    if (!validation_ || ends() || !validation_->Due(done, steps())) return absl::OkStatus();
    const auto began = SteadyClock::now();
    const InPhase phase = phases_.Validating(validation_->micro_batches());
    const auto evaluate = [this](const MicroBatch& batch) {
      phases_.CountMicroBatch();
      return model_->Evaluate(batch);
    };
    GEMINID_ASSIGN_OR_RETURN(
        const std::optional<double> mine,
        validation_->Run(
            evaluate, [&] { return AskForEnd(); }, options_.parallel.pipeline));
    if (!mine.has_value()) return absl::OkStatus();
    phases_.SetValidationSeconds(SecondsSince(began));
    std::vector<double> sum = {*mine};
    GEMINID_RETURN_IF_ERROR(loss_communicator_->AllReduce(sum, sum, collectives::ReduceOp::kSum));
    report_.validation.push_back({done, sum[0] / static_cast<double>(validation_->tokens())});
    return absl::OkStatus();
  }

  absl::Status ShowProgress(uint64_t done) {
    const absl::Time now = base::MonotonicNow();
    if (!progress_.Due(done, steps(), now)) return absl::OkStatus();
    GEMINID_ASSIGN_OR_RETURN(const zero::Statistics statistics, model_->engine().GetStatistics());
    ProgressSample sample = SampleOf(report_, statistics, SecondsSince(training_began_));
    const uint64_t tokens = course_->micro_batches() * options_.batch * options_.model.context;
    sample.remaining = absl::Seconds(phases_.RemainingSeconds(
        done, steps(), static_cast<double>(tokens) / sample.tokens_per_second, tokens,
        validation_ ? &*validation_ : nullptr));
    progress_.Show(sample, now);
    return absl::OkStatus();
  }

  // All ranks take part; rank 0 writes.
  absl::Status FinishReport() {
    // Whoever stops a run may kill it soon.
    const bool in_time = options_.weights_hash == WeightsHash::kAlways || end_.signal == 0;
    if (!options_.report.empty() && options_.weights_hash != WeightsHash::kNever && in_time) {
      const InPhase phase = phases_.Passing("hashing the weights");
      GEMINID_ASSIGN_OR_RETURN(report_.weights_sha256,
                               HashOfWeights(*state_, model_->parameters().size(), rank() == 0));
    }
    GEMINID_RETURN_IF_ERROR(GatherRun(*loss_communicator_, *model_, *session_, &report_));
    if (rank() != 0 || options_.report.empty()) return absl::OkStatus();
    report_.parameters = CountParameters(options_.model);
    report_.mesh = mesh_->ToString();
    report_.final_loss_scale = model_->engine().loss_scale();
    report_.advice = watch_->Advice();
    if (ends()) report_.ended_by = ByWhat(end_);
    return base::ReplaceFile(options_.report, ToJson(report_));
  }

  TrainOptions options_;  // once the ranks have met, with the mesh that was chosen
  RunTerms terms_;        // as the flags say them, whatever mesh is chosen
  RankContext context_;
  Progress progress_;
  std::unique_ptr<kernels::ThreadPool> threads_;  // null: one
  std::optional<collectives::Mesh> mesh_;
  // Destroyed in reverse order: the model uses the session and the communicator.
  std::unique_ptr<collectives::Communicator> communicator_;
  std::unique_ptr<collectives::Communicator> loss_communicator_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<TrainedModel> model_;
  std::unique_ptr<CountedState> state_;  // of the model
  std::unique_ptr<Checkpoints> checkpoints_;
  std::optional<EndAgreement> agreement_;
  std::optional<Scaling> scaling_;
  bool handed_over_ = false;
  std::optional<Batches> batches_;
  std::optional<BatchCourse> course_;
  double last_rate_ = 0;  // of the newest step
  std::optional<Validation> validation_;
  std::optional<RunLog> log_;
  absl::Status log_status_;
  bool said_refused_ = false;
  bool said_disk_ = false;
  bool said_endurance_ = false;
  zero::StepResult last_step_;
  ActivationChoice activations_;
  std::optional<BatchWatch> watch_;
  Report report_;
  TrainEnd end_;
  std::string saved_in_;
  SteadyClock::time_point training_began_;
  RunPhases phases_;  // destroyed first: it asks the others how far they are
};

}  // namespace

absl::StatusOr<TrainEnd> TrainAsRank(const TrainOptions& options, const RankContext& context) {
  GEMINID_RETURN_IF_ERROR(CheckAccumulateRange(options, context.info.world_size));
  GEMINID_ASSIGN_OR_RETURN(const TrainOptions run, WithStepsOf(options, *context.data));
  return RankTrainer(run, context).Run();
}

}  // namespace geminid::trainer
