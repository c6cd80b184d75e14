#include "tools/trainer/checkpoints.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "client/checkpoint/folder.h"
#include "client/checkpoint/run_record.h"
#include "tools/trainer/flags/resumed_run.h"
#include "tools/trainer/flags/run_terms.h"
#include "training/engines/loaded_values.h"
#include "training/models/fine_tuning.h"
#include "training/models/huggingface.h"
#include "training/settings/flag_words.h"

namespace geminid::trainer {
namespace {

// 64 random bits, so that two runs do not have the same id.
std::string NewRunId() {
  std::random_device random;
  return absl::StrFormat("%08x%08x", random(), random());
}

// The checkpoint that this run continues: the one that --resume found, or, after a restart, the
// last one that an earlier start has saved.
absl::StatusOr<std::optional<ResumedRun>> FindBefore(const TrainOptions& options, bool is_restart) {
  if (options.resumed.has_value() || !is_restart) return options.resumed;
  return FindResumed(options.save);
}

// The names of the run's earlier checkpoints that may be pruned. First come checkpoints of later
// steps than the one the run continues from: the run abandons these.
absl::StatusOr<std::vector<std::string>> Adopted(const TrainOptions& options,
                                                 const std::optional<ResumedRun>& before) {
  if (!before.has_value()) return std::vector<std::string>();
  GEMINID_ASSIGN_OR_RETURN(std::vector<std::string> names,
                           CheckpointsOfRun(options.save, before->run.id));
  std::stable_partition(names.begin(), names.end(), [&](const std::string& name) {
    const std::string from = checkpoint::NameOfStep(before->step);
    return std::pair(name.size(), name) > std::pair(from.size(), from);
  });
  return names;
}

}  // namespace

checkpoint::Health HealthOf(double loss, const zero::StepResult& step,
                            const TrainOptions& options) {
  const bool looks_for_scale = step.overflow && options.zero.loss_scale.has_value();
  const bool is_healthy =
      std::isfinite(loss) && (looks_for_scale || std::isfinite(step.gradient_norm));
  return is_healthy ? checkpoint::Health::kHealthy : checkpoint::Health::kDiverged;
}

Checkpoints::Checkpoints(const TrainOptions& options, zero::ModelState* state,
                         collectives::Communicator* communicator,
                         std::vector<zero::Parameter> parameters, Warn warn)
    : options_(options),
      state_(state),
      communicator_(communicator),
      parameters_(std::move(parameters)),
      warn_(std::move(warn)) {}

absl::StatusOr<std::unique_ptr<Checkpoints>> Checkpoints::Create(
    const TrainOptions& options, zero::ModelState* state, collectives::Communicator* communicator,
    std::vector<zero::Parameter> parameters, RunTerms terms, bool is_restart, Warn warn) {
  std::unique_ptr<Checkpoints> made(
      new Checkpoints(options, state, communicator, std::move(parameters), std::move(warn)));
  if (options.save.empty()) return made;
  checkpoint::SaverOptions saver = {.folder = options.save, .keep = options.keep};
  if (communicator->Rank() == 0) {
    GEMINID_ASSIGN_OR_RETURN(const std::optional<ResumedRun> before,
                             FindBefore(options, is_restart));
    GEMINID_ASSIGN_OR_RETURN(saver.adopts, Adopted(options, before));
    made->run_ = {.id = before ? before->run.id : "", .terms = std::move(terms)};
    if (made->run_.id.empty()) made->run_.id = NewRunId();
    saver.texts = {{"config.json", HuggingFaceConfig(options.model, "float32")},
                   {kRunName, RunText(made->run_)}};
  }
  GEMINID_ASSIGN_OR_RETURN(
      made->saver_,
      checkpoint::Saver::Create(state, communicator, made->parameters_, std::move(saver)));
  return made;
}

absl::StatusOr<Checkpoints::StartPoint> Checkpoints::Begin(const zero::ModelState::Fill& fill,
                                                           const TakeOver& take_over,
                                                           const CanContinue& can_continue) {
  StartPoint start_point;
  if (const std::optional<zero::Resumed> left = state_->resumed(); left.has_value()) {
    if (!can_continue(left->step, {left->data_position, left->random_state})) {
      return absl::InternalError("the state that the ranks left in memory belongs to another run");
    }
    began_in_memory_ = true;
    return StartPoint{left->step, "memory"};
  }
  GEMINID_ASSIGN_OR_RETURN(const std::optional<RunPosition> left, take_over());
  if (left.has_value()) {
    if (!can_continue(left->progress.step, left->run)) {
      return absl::InternalError("the state that was handed over belongs to another run");
    }
    began_in_memory_ = true;
    health_ = left->health;
    return StartPoint{left->progress.step, "memory"};
  }
  if (options_.resumed.has_value()) {
    absl::StatusOr<StartPoint> resumed = Resume(can_continue);
    if (!resumed.ok()) return WithPath("--save", options_.save, resumed.status());
    return resumed;
  }
  if (!options_.load.empty()) {
    // Adapters and a classifier that the folder does not have start with their initial values.
    if (options_.model.lora_rank > 0 || options_.model.classifies()) {
      GEMINID_RETURN_IF_ERROR(state_->Initialize(fill));
    }
    GEMINID_RETURN_IF_ERROR(
        WithPath("--load", options_.load, LoadModelValues(options_, state_, parameters_)));
    GEMINID_ASSIGN_OR_RETURN(const std::string remark, RemarkOfFrozen(options_, parameters_));
    if (!remark.empty() && communicator_->Rank() == 0) {
      warn_(absl::StrCat("geminid-train: ", remark));
    }
    start_point.from = options_.load;
  } else {
    GEMINID_RETURN_IF_ERROR(state_->Initialize(fill));
  }
  return start_point;
}

// The other terms were compared when the flags were read; only data and mesh could not be.
absl::Status Checkpoints::CheckLateTerms(std::vector<std::string>* taken) const {
  if (communicator_->Rank() != 0) return absl::OkStatus();
  RunTerms late;
  for (const char* const name : {kDataTerm, kMeshTerm}) late[name] = run_.terms.at(name);
  return CheckTerms(options_.resumed->checkpoint, options_.resumed->run.terms, late, taken);
}

absl::StatusOr<Checkpoints::StartPoint> Checkpoints::Resume(const CanContinue& can_continue) {
  const ResumedRun& resumed = *options_.resumed;
  std::vector<std::string> taken = resumed.taken;
  GEMINID_RETURN_IF_ERROR(CheckLateTerms(&taken));
  GEMINID_ASSIGN_OR_RETURN(const zero::Progress fresh, state_->GetProgress());
  absl::StatusOr<checkpoint::Loaded> found =
      checkpoint::Load(resumed.checkpoint, state_, communicator_, parameters_);
  if (!found.ok()) return WithOlderOne(resumed.checkpoint, found.status());
  checkpoint::Loaded& loaded = *found;
  if (!can_continue(loaded.progress.step, loaded.run)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", loaded.folder,
        "' was saved with another --seed, --batch or --accumulate, so its place in the text is "
        "not this run's; give the same, or another folder to --save"));
  }
  // A changed --loss-scale begins with its own first value.
  const auto scale = resumed.run.terms.find("loss-scale");
  if (scale != resumed.run.terms.end() && scale->second != TermsOf(options_).at("loss-scale")) {
    loaded.progress.loss_scaler = fresh.loss_scaler;
    GEMINID_RETURN_IF_ERROR(state_->Restore(loaded.progress));
  }
  return StartPoint{loaded.progress.step, loaded.folder, NotesOfResuming(std::move(taken))};
}

std::string Checkpoints::NotesOfResuming(std::vector<std::string> notes) const {
  const ResumedRun& resumed = *options_.resumed;
  if (!resumed.passed_over.empty()) {
    notes.insert(notes.begin(), absl::StrCat("'", resumed.passed_over,
                                             "' is passed over: it was saved after a loss or norm "
                                             "that was not finite"));
  }
  if (!resumed.without_record.empty()) {
    notes.insert(notes.begin(),
                 absl::StrCat("'", resumed.without_record, "' is passed over: it has no ",
                              checkpoint::kRecordName));
  }
  if (!options_.load.empty()) {
    notes.push_back(absl::StrCat("--load ", options_.load, " is not read"));
  }
  return absl::StrJoin(notes, "; ");
}

void Checkpoints::WarnOfFailure(uint64_t step, const absl::Status& failure) const {
  if (communicator_->Rank() != 0) return;
  warn_(absl::StrCat("geminid-train: the checkpoint of step ", step,
                     " could not be saved: ", std::string(failure.message())));
}

absl::Status Checkpoints::AfterStep(uint64_t done, bool last, const checkpoint::RunState& run,
                                    checkpoint::Health health) {
  const bool due = options_.save_every > 0 && done % options_.save_every == 0;
  if (saver_ == nullptr || (!due && !last) || saved_ == done) return absl::OkStatus();
  AwaitSave();
  const absl::Status status = WithPath("--save", options_.save, saver_->Save(run, health));
  if (status.ok()) saved_ = done;
  if (status.ok() || last) return status;
  WarnOfFailure(done, status);
  return absl::OkStatus();
}

void Checkpoints::AwaitSave() {
  if (!saved_) return;
  if (const absl::Status before = Finish().status(); !before.ok()) WarnOfFailure(*saved_, before);
}

absl::Status Checkpoints::AfterResume(uint64_t done, bool last, const checkpoint::RunState& run) {
  if (saver_ == nullptr || !began_in_memory_) return absl::OkStatus();
  std::vector<double> there = {0};
  if (communicator_->Rank() == 0) {
    const std::string path = absl::StrCat(options_.save, "/", checkpoint::NameOfStep(done));
    there[0] = ::access(path.c_str(), F_OK) == 0 ? 1 : 0;
  }
  GEMINID_RETURN_IF_ERROR(communicator_->AllReduce(there, there, collectives::ReduceOp::kSum));
  return there[0] > 0 ? absl::OkStatus() : AfterStep(done, last, run, health_);
}

absl::Status Checkpoints::Export() {
  if (options_.export_to.empty()) return absl::OkStatus();
  const char* const type = options_.export_type == checkpoint::ExportType::kFloat32    ? "float32"
                           : options_.export_type == checkpoint::ExportType::kBFloat16 ? "bfloat16"
                                                                                       : "float16";
  ModelConfig merged = options_.model;
  merged.lora_rank = 0;
  checkpoint::ExportOptions options = {.folder = options_.export_to,
                                       .type = options_.export_type,
                                       .texts = {{"config.json", HuggingFaceConfig(merged, type)}}};
  options.name_of = [](const zero::Parameter& parameter) {
    return IsAdapter(parameter) ? std::string() : parameter.name;
  };
  if (options_.model.lora_rank > 0) {
    options.adjust = [this](zero::ParameterId id, std::vector<float>* values) {
      return MergeAdapter(
          options_.model, id,
          [this](zero::ParameterId other) { return state_->ReadParameter(other); }, values);
    };
  }
  return WithPath("--export", options_.export_to,
                  checkpoint::ExportValues(options, state_, communicator_, parameters_));
}

absl::StatusOr<std::string> Checkpoints::Finish() {
  if (saver_ == nullptr) return std::string();
  awaits_save_ = true;
  absl::StatusOr<std::string> saved = saver_->Wait();
  awaits_save_ = false;
  if (!saved.ok()) return WithPath("--save", options_.save, saved.status());
  return saved;
}

}  // namespace geminid::trainer
