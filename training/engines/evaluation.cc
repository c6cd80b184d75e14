#include "training/engines/evaluation.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "kernels/runtime/parallel/tasks.h"
#include "training/engines/loaded_values.h"
#include "training/engines/validation.h"
#include "training/logs/counted_state.h"
#include "training/logs/phase.h"
#include "training/ranks/ranks_place.h"
#include "training/ranks/run_end.h"
#include "training/ranks/threads.h"
#include "training/settings/device_need.h"
#include "training/settings/flag_words.h"
#include "training/settings/mesh_choice.h"
#include "training/settings/rank_share.h"

namespace geminid::trainer {
namespace {

class Evaluator {
 public:
  Evaluator(const TrainOptions& options, const RankContext& context)
      : options_(options),
        context_(context),
        teller_(context.info.rank != 0 || options.progress == ProgressMode::kNone
                    ? PhaseTeller::Write()
                    : [this](const std::string& line) { context_.write_stderr(line + "\n"); }) {
    context_.on_wait = [this] { teller_.End(); };  // what a queued job waits for is said
  }

  absl::Status Prepare(collectives::Communicator* communicator) {
    GEMINID_ASSIGN_OR_RETURN(threads_, MakeThreads(options_.threads, context_.info, *communicator));
    evaluation_.threads = kernels::ThreadsOf(threads_.get());
    GEMINID_ASSIGN_OR_RETURN(RunMesh found, FindRunMesh(std::move(options_), evaluation_.threads,
                                                        context_, *communicator));
    options_ = std::move(found.options);
    mesh_ = std::move(found.mesh);
    GEMINID_ASSIGN_OR_RETURN(communicator_, communicator->Duplicate("evaluation"));
    GEMINID_RETURN_IF_ERROR(PrepareData());
    teller_.Begin("registering memory with the daemon");
    const uint64_t unlimited =
        UnlimitedDeviceBytes(options_, context_.info.world_size, evaluation_.threads, Stage());
    GEMINID_ASSIGN_OR_RETURN(session_,
                             ConnectDaemon(options_, context_, unlimited, YieldOptions{}));
    end_.emplace(communicator_.get(), session_.get(), context_.stop_signal, /*stops_on_nan=*/false);
    GEMINID_ASSIGN_OR_RETURN(model_, TrainedModel::Create({.options = options_,
                                                           .mesh = *mesh_,
                                                           .world = *communicator,
                                                           .session = *session_,
                                                           .threads = threads_.get()}));
    CountedState state(&model_->state(), model_->parameters());
    const InPhase phase(&teller_, absl::StrCat("loading ", options_.load),
                        [&state] { return state.Loaded(CountedState::Kinds::kValues); });
    return WithPath("--load", options_.load,
                    LoadModelValues(options_, &state, model_->parameters()));
  }

  absl::Status Measure() {
    if (context_.nothing_to_save) context_.nothing_to_save(false);
    std::atomic<uint64_t> done = 0;
    const InPhase phase(&teller_, "evaluation", [&] {
      return PhaseProgress{
          .done = done, .of = validation_->micro_batches(), .unit = "micro-batches"};
    });
    const absl::Time began = base::MonotonicNow();
    const auto evaluate = [&](const MicroBatch& batch) {
      ++done;
      return model_->Evaluate(batch);
    };
    GEMINID_ASSIGN_OR_RETURN(
        const std::optional<double> mine,
        validation_->Run(
            evaluate, [this] { return end_->Ask(); }, options_.parallel.pipeline));
    evaluation_.signal = end_->how().signal;
    evaluation_.tokens = validation_->tokens();
    if (!mine.has_value()) return absl::OkStatus();
    GEMINID_ASSIGN_OR_RETURN(const double sum, end_->Add(*mine));
    const auto targets = static_cast<double>(validation_->targets());
    if (const std::optional<uint64_t> right = validation_->right()) {
      GEMINID_ASSIGN_OR_RETURN(const double all, end_->Add(static_cast<double>(*right)));
      evaluation_.accuracy = all / targets;
    }
    evaluation_.signal = 0;  // it came too late to end anything
    evaluation_.loss = sum / targets;
    evaluation_.seconds = absl::ToDoubleSeconds(base::MonotonicNow() - began);
    return absl::OkStatus();
  }

  absl::Status End(const std::function<absl::Status(const EvaluatedRun& run)>& on_end) {
    return on_end({.options = options_,
                   .evaluation = evaluation_,
                   .mesh = *mesh_,
                   .communicator = *communicator_,
                   .model = *model_,
                   .session = *session_});
  }

  const Evaluation& evaluation() const { return evaluation_; }

 private:
  int Stage() const { return mesh_->Coordinate(context_.info.rank, kPipelineAxis); }

  absl::Status PrepareData() {
    const BatchPlan plan = ShareOf(options_, *mesh_, context_.info.rank).batch;
    GEMINID_ASSIGN_OR_RETURN(
        const Split split,
        SplitTokens(*context_.data, options_.validation_share, options_.model.context));
    const TokenRange& data = options_.validation_share > 0 ? split.held_out : split.training;
    GEMINID_ASSIGN_OR_RETURN(validation_, Validation::Create(data, plan, /*every_steps=*/1,
                                                             options_.validation_batches));
    return absl::OkStatus();
  }

  TrainOptions options_;
  RankContext context_;
  std::unique_ptr<kernels::ThreadPool> threads_;  // null: one
  std::optional<collectives::Mesh> mesh_;
  // Destroyed in reverse order: the model uses the session.
  std::unique_ptr<collectives::Communicator> communicator_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<TrainedModel> model_;
  std::optional<RunEnd> end_;
  std::optional<Validation> validation_;
  Evaluation evaluation_;
  PhaseTeller teller_;  // destroyed first: it asks the others how far they are
};

}  // namespace

absl::StatusOr<Evaluation> EvaluateOnRank(
    const TrainOptions& options, const RankContext& context,
    const std::function<absl::Status(const EvaluatedRun& run)>& on_end) {
  GEMINID_ASSIGN_OR_RETURN(const auto communicator, ConnectRanks(options, context));
  Evaluator evaluator(options, context);
  absl::Status status = evaluator.Prepare(communicator.get());
  if (status.ok()) status = evaluator.Measure();
  if (status.ok()) status = evaluator.End(on_end);
  if (status.ok()) return evaluator.evaluation();
  status =
      WithDeviceAdvice(status, options, context.info.world_size, evaluator.evaluation().threads);
  if (context.on_failure) context.on_failure(status);
  communicator->Abort(
      absl::StrCat("rank ", context.info.rank, ": ", std::string(status.message())));
  return status;
}

}  // namespace geminid::trainer
