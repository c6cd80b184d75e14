#include "tools/trainer/flags/command_line.h"

#include <CLI/CLI.hpp>
#include <array>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/command_line.h"
#include "base/flag_values.h"
#include "base/status_macros.h"
#include "tools/trainer/flags/data_flags.h"
#include "tools/trainer/flags/flag_effects.h"
#include "tools/trainer/flags/flags.h"
#include "tools/trainer/flags/generate_flags.h"
#include "tools/trainer/flags/memory_flags.h"
#include "tools/trainer/flags/model_flags.h"
#include "tools/trainer/flags/optimizer_flags.h"
#include "tools/trainer/flags/resumed_run.h"
#include "tools/trainer/flags/run_flags.h"
#include "tools/trainer/flags/run_length.h"
#include "tools/trainer/flags/run_terms.h"
#include "tools/trainer/flags/schedule_flags.h"
#include "training/models/fine_tuning.h"
#include "training/models/huggingface.h"
#include "training/settings/evaluation_flags.h"
#include "training/settings/flag_words.h"
#include "training/settings/outputs.h"

namespace geminid::trainer {
namespace {

constexpr FlagSpec kClipFlag = {"--clip-norm", &Flags::clip_norm, "X",
                                "Limit of the gradients' norm; 0: none"};
constexpr FlagSpec kUpdateFlag = {
    "--update", &Flags::update, "WHEN",
    "When parameters are updated: after a step (step), in its backward pass (backward; needs no "
    "room for gradients), or auto: backward with --clip-norm 0 if no other flag forbids it"};

constexpr FlagSpec kParallelFlag = {
    "--parallel", &Flags::parallel, "AXES",
    "How ranks share the run: pipeline=N, interleaved:N:chunks=V or zbv:N stages of layers, "
    "tensor=MODE:N "
    "shards of each layer, sequence=ulysses:N or ring:N shards of each sequence, expert=N shards "
    "of each layer's experts, data=N, zero=1 to 3 for ZeRO's stage or 3:host to gather "
    "weights from other hosts once a step, such as pipeline=2,data=2; or auto"};

void AddTraining(CLI::App* app, Flags* flags) {
  AddDataFlags(app, flags);
  AddFlags(app, flags, "Model", ModelFlags());
  AddFlags(app, flags, "Model", TypeFlags());
  AddFlags(app, flags, "Optimizer", OptimizerFlags());
  AddFlag(app, flags, "Optimizer", kClipFlag);
  AddFlag(app, flags, "Optimizer", kUpdateFlag);
  AddFlags(app, flags, "Schedule", ScheduleFlags());
  for (const OwnedFlag& flag : ShapeFlags()) AddFlag(app, flags, "Schedule", flag.spec);
  AddFlags(app, flags, "Memory", MemoryFlags());
  AddFlag(app, flags, "Memory", kStatePlacementFlag);
  AddFlags(app, flags, "Memory", StateDiskFlags());
  AddFlag(app, flags, "Memory", kActivationsFlag);
  AddFlags(app, flags, "Checkpoints", CheckpointFlags());
  AddFlag(app, flags, "Checkpoints", kLoadFlag);
  app->add_flag("--resume", flags->resume,
                "Go on from the newest checkpoint in --save DIR, with the flags of its run where "
                "you give none; begin anew if there is no checkpoint")
      ->group("Checkpoints");
  app->add_flag("--save-over", flags->save_over,
                "Replace the checkpoints of another run in --save DIR, once this run has saved one")
      ->group("Checkpoints");
  app->add_flag("--eval-only", flags->eval_only,
                "Measure the loss of --load's values on the data, or on the share of --validation, "
                "and end; nothing is trained or saved")
      ->group("Run");
  AddFlag(app, flags, "Run", kParallelFlag);
  AddFlags(app, flags, "Run", ProcessFlags());
  AddFlags(app, flags, "Run", HostsFlags());
  AddFlags(app, flags, "Run", OutputFlags());
  app->add_flag("--stop-on-nan", flags->stop_on_nan,
                "End after the first step whose loss is not finite, with exit code 11")
      ->group("Run");
  app->add_flag("--quiet", flags->quiet, "The same as --progress none")->group("Run");
  std::string models = "Models and their parameters (with a vocabulary of bytes):\n";
  for (const Preset& preset : Presets()) {
    absl::StrAppendFormat(&models, "  %-12s %d\n", preset.name, CountParameters(preset.config));
  }
  app->footer(models);
}

CLI::App* AddGenerate(CLI::App* app, Flags* flags) {
  CLI::App* const generate =
      app->add_subcommand("generate", "Continues a text with a model's values");
  generate->footer("");  // does not repeat the models' names
  AddFlag(generate, flags, "Model", kLoadFlag);
  AddFlags(generate, flags, "Model", TypeFlags());
  AddFlags(generate, flags, "Text", GenerateFlags());
  generate->add_flag("--json", flags->json, "Print one JSON object")->group("Text");
  AddFlags(generate, flags, "Memory", MemoryFlags());
  AddFlags(generate, flags, "Run", ProcessFlags());
  return generate;
}

CLI::App* AddHost(CLI::App* app) {
  CLI::App* const host = app->add_subcommand(
      "host", "Runs the ranks of this host for a geminid-train --hosts, which starts it");
  host->footer("");
  return host;
}

// Called after all options that exclude this update time have been parsed.
absl::Status ParseUpdate(const Flags& flags, const Parallel& parallel, zero::Options* options) {
  using zero::UpdateTime;
  std::string why;
  if (options->clip_norm > 0) why = "--clip-norm 0";
  if (options->loss_scale.has_value()) why = "--loss-scale none";
  if (options->accumulate > 1) why = "--accumulate 1";
  if (parallel.tensor.size > 1) why = "a run without tensor";
  if (parallel.pipeline > 1) why = "a run without a pipeline";
  if (parallel.expert > 1) why = "a run without distributed experts";
  if (parallel.automatic) why = "a --parallel that names the axes";
  if (NeedsSums(options->optimizer)) why = "an --optimizer that needs no sums over tensors";
  const UpdateTime automatic = why.empty() ? UpdateTime::kInBackward : UpdateTime::kAfterStep;
  GEMINID_ASSIGN_OR_RETURN(
      options->update,
      base::ParseWord(
          "--update", flags.update,
          std::array{std::pair{"auto", automatic},
                     std::pair{Name(UpdateTime::kAfterStep), UpdateTime::kAfterStep},
                     std::pair{Name(UpdateTime::kInBackward), UpdateTime::kInBackward}}));
  if (options->update == UpdateTime::kAfterStep || why.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--update backward needs ", why));
}

absl::Status ParseTraining(const Flags& flags, TrainOptions* options) {
  GEMINID_ASSIGN_OR_RETURN(options->zero.optimizer, ParseOptimizer(flags));
  GEMINID_ASSIGN_OR_RETURN(options->zero.state_type,
                           ParseStateType(flags, options->zero.optimizer));
  GEMINID_ASSIGN_OR_RETURN(options->schedule,
                           ParseSchedule(flags, UsualLearningRate(options->zero.optimizer)));
  options->usual_warmup = flags.warmup_steps.empty();
  GEMINID_ASSIGN_OR_RETURN(options->zero.loss_scale, ParseLossScale(flags));
  GEMINID_ASSIGN_OR_RETURN(options->zero.clip_norm,
                           base::ParseReal("--clip-norm", flags.clip_norm, 0, 1e9));
  GEMINID_ASSIGN_OR_RETURN(
      const uint64_t threads,
      base::ParseCount("--update-threads", flags.update_threads, 1, zero::kMaxUpdateThreads));
  options->zero.update_threads = static_cast<int>(threads);
  GEMINID_RETURN_IF_ERROR(ParseUpdate(flags, options->parallel, &options->zero));
  return ParseTypes(flags, options);
}

using IsFlagGiven = std::function<bool(const std::string& flag)>;

absl::Status AddEffects(std::span<const FlagEffect> effects, const Flags& flags,
                        const IsFlagGiven& given, std::vector<std::string>* notes) {
  GEMINID_ASSIGN_OR_RETURN(const std::vector<std::string> said,
                           CheckEffects(effects, flags, given));
  notes->insert(notes->end(), said.begin(), said.end());
  return absl::OkStatus();
}

IsFlagGiven GivenTo(const CLI::App& app) {
  return [&app](const std::string& flag) { return app.get_option(flag)->count() > 0; };
}

// `notes` receives remarks about the flags.
absl::StatusOr<TrainOptions> ReadTraining(Flags flags, const IsFlagGiven& given,
                                          std::vector<std::string>* notes) {
  TrainOptions options;
  for (const FlagEffect& effect : TrainingEffects()) {
    if (given(effect.flag)) options.given.emplace_back(effect.flag);
  }
  GEMINID_RETURN_IF_ERROR(CheckDataPath(flags));
  if (flags.eval_only) {
    GEMINID_RETURN_IF_ERROR(CheckEvaluationFlags(options.given, notes));
    flags.dropout.clear();
    flags.freeze.clear();
    GEMINID_RETURN_IF_ERROR(FillTypes(given, &flags));
  }
  if (flags.resume && !flags.save.empty()) {
    const std::string save = WithoutSlashesAtEnd(flags.save);
    absl::StatusOr<std::optional<ResumedRun>> resumed = FindResumed(save);
    if (!resumed.ok()) return WithPath("--save", save, resumed.status());
    options.resumed = *std::move(resumed);
  }
  if (options.resumed) FillFlags(options.resumed->run.terms, given, &flags);
  GEMINID_RETURN_IF_ERROR(ChooseLength(given, &flags));
  GEMINID_RETURN_IF_ERROR(AddEffects(TrainingEffects(), flags, given, notes));
  GEMINID_RETURN_IF_ERROR(ParseProcesses(flags, &options));
  if (flags.eval_only) GEMINID_RETURN_IF_ERROR(CheckRanksAreFixed(options));
  GEMINID_RETURN_IF_ERROR(ParseOutput(flags, &options));
  const bool loads = !options.resumed && !flags.load.empty();
  absl::StatusOr<ModelConfig> model =
      ParseModel(flags, options.resumed ? options.resumed->checkpoint : flags.load);
  if (!model.ok() && options.resumed) {
    return WithOlderOne(options.resumed->checkpoint, model.status());
  }
  GEMINID_ASSIGN_OR_RETURN(options.model, std::move(model));
  GEMINID_RETURN_IF_ERROR(CheckMaskToken(options.model));
  if (loads) {
    GEMINID_RETURN_IF_ERROR(
        WithPath("--load", flags.load, CheckLoadedShape(flags.load, options.model)));
    if (!flags.text.empty()) {
      GEMINID_RETURN_IF_ERROR(CheckTextForLoaded(flags.load, options.model, notes));
    }
    NoteClassifier(flags.load, options.model, notes);
  }
  if (!flags.freeze.empty()) options.frozen = absl::StrSplit(flags.freeze, ',');
  GEMINID_RETURN_IF_ERROR(TrainedParameters(options.model, options.frozen).status());
  GEMINID_RETURN_IF_ERROR(ParseData(flags, &options));
  GEMINID_RETURN_IF_ERROR(ParseTraining(flags, &options));
  GEMINID_RETURN_IF_ERROR(ParseMemory(flags, &options));
  GEMINID_RETURN_IF_ERROR(ParseCheckpoints(flags, &options));
  GEMINID_RETURN_IF_ERROR(CheckParallel(options));
  if (flags.eval_only) GEMINID_RETURN_IF_ERROR(MakeEvaluation(&options));
  if (options.epochs == 0) GEMINID_RETURN_IF_ERROR(CheckResumed(&options));
  return options;
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments) {
  CLI::App app("Trains a decoder-only transformer with Geminid.", "geminid-train");
  app.set_version_flag("--version", absl::StrCat("geminid-train ", GEMINID_VERSION));
  Flags flags;
  AddTraining(&app, &flags);
  const CLI::App* const generate = AddGenerate(&app, &flags);
  const CLI::App* const host = AddHost(&app);
  base::RefuseEmptyValues(&app);
  CommandLine line;
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // the last first
  } catch (const CLI::CallForVersion& version) {
    line.text = absl::StrCat(version.what(), "\n");
    return line;
  } catch (const CLI::CallForHelp& asked) {
    if (base::HasUnknownWords(app)) {
      return absl::InvalidArgumentError(base::DescribeParseError(app, asked));
    }
    line.text = app.help();
    return line;
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(base::DescribeParseError(app, error));
  }
  if (host->parsed()) {
    line.is_host = true;
  } else if (generate->parsed()) {
    line.notes = RepeatedFlags(*generate);
    const IsFlagGiven given = GivenTo(*generate);
    GEMINID_RETURN_IF_ERROR(FillTypes(given, &flags));
    GEMINID_RETURN_IF_ERROR(AddEffects(GeneratingEffects(), flags, given, &line.notes));
    GEMINID_ASSIGN_OR_RETURN(line.generate, ReadGenerate(flags));
  } else {
    line.notes = RepeatedFlags(app);
    GEMINID_ASSIGN_OR_RETURN(line.options, ReadTraining(flags, GivenTo(app), &line.notes));
    line.options->notes = line.notes;
  }
  return line;
}

}  // namespace geminid::trainer
