#include "tools/trainer/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "base/command_line.h"
#include "base/flag_values.h"
#include "base/status_macros.h"
#include "tools/trainer/data_flags.h"
#include "tools/trainer/flags.h"
#include "tools/trainer/optimizer_flags.h"
#include "tools/trainer/schedule_flags.h"

namespace geminid::trainer {
namespace {

constexpr double kTimeoutSecondsMax = 86'400;
constexpr size_t kJobNameMax = 63;
constexpr uint64_t kDevicesMax = 64;

absl::Status WithFlag(const char* flag, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(flag, ": ", std::string(status.message())));
}

absl::StatusOr<std::optional<uint64_t>> ParseSize(const char* flag, const std::string& text) {
  if (text == kUnlimited) return std::nullopt;
  const absl::StatusOr<uint64_t> bytes = base::ParseBytes(text);
  if (!bytes.ok()) return WithFlag(flag, bytes.status());
  if (*bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " is 0; give a size such as 24MiB, or '", kUnlimited, "'"));
  }
  return std::optional<uint64_t>(*bytes);
}

constexpr FlagSpec kModelFlags[] = {
    {"--model", &Flags::model, "NAME", "A shape by name, see below; other flags change it"},
    {"--family", &Flags::family, "NAME", "gpt2 or llama, for a shape of your own"},
    {"--layers", &Flags::layers, "N", "Layers"},
    {"--hidden", &Flags::hidden, "N", "Hidden size"},
    {"--heads", &Flags::heads, "N", "Attention heads"},
    {"--context", &Flags::context, "N", "Tokens per sequence"},
    {"--vocabulary", &Flags::vocabulary, "N", "Kinds of tokens [256, as text is bytes]"},
    {"--dtype", &Flags::dtype, "TYPE", "Of weights and activations: bf16 or fp32"},
};
constexpr FlagSpec kClipFlag = {"--clip-norm", &Flags::clip_norm, "X",
                                "Limit of the gradients' norm; 0: none"};
constexpr FlagSpec kMemoryFlags[] = {
    {"--placement", &Flags::placement, "WHERE", "Where weights live: device, cpu or auto"},
    {"--optimizer-state", &Flags::optimizer_state, "WHERE",
     "auto, host, device, or a share of the device memory to spare, from 0 to 1"},
    {"--device", &Flags::device, "N",
     "Device of every rank; otherwise $GEMINID_DEVICE, or the node's devices in turn"},
    {"--device-memory", &Flags::device_memory, "SIZE", "Of each rank, such as 24MiB, or unlimited"},
    {"--host-memory", &Flags::host_memory, "SIZE",
     "What the run's own daemon hands out, or unlimited"},
    {"--copy-bandwidth", &Flags::copy_bandwidth, "SIZE/s",
     "Speed of the simulated link, such as 10GB/s, or unlimited"},
};
constexpr FlagSpec kCheckpointFlags[] = {
    {"--save", &Flags::save, "DIR", "Save checkpoints in this folder: at the end, and at a signal"},
    {"--save-every", &Flags::save_every, "N", "Save every N steps too, while training goes on"},
    {"--keep", &Flags::keep, "N", "Newest checkpoints to keep; 0: all"},
    {"--load", &Flags::load, "DIR",
     "Begin with the values of a checkpoint or a Hugging Face folder of this model"},
};
constexpr FlagSpec kRunFlags[] = {
    {"--update-threads", &Flags::update_threads, "N", "Of each rank, for the optimizer's update"},
    {"--ranks", &Flags::ranks, "N", "Processes to train with; this program starts them"},
    {"--timeout", &Flags::timeout, "SECONDS", "How long to wait for another rank"},
    {"--socket", &Flags::socket, "PATH",
     "The daemon's; otherwise $GEMINID_SOCKET, the installed one, or a daemon of the run's own"},
    {"--job", &Flags::job, "NAME", "Of the run, in the daemon's books"},
    {"--report", &Flags::report, "PATH", "Write a JSON report to this file"},
    {"--progress", &Flags::progress, "MODE", "auto, terminal, lines or none"},
};

void AddFlag(CLI::App* app, Flags* flags, const char* group, const FlagSpec& spec) {
  // The last of several wins, so that scripts can add to a command line.
  CLI::Option* option = app->add_option(spec.name, flags->*spec.value, spec.help);
  option->group(group)->type_name(spec.type)->take_last()->capture_default_str();
}

void AddFlags(CLI::App* app, Flags* flags) {
  const auto add = [&](const char* group, std::span<const FlagSpec> specs) {
    for (const FlagSpec& spec : specs) AddFlag(app, flags, group, spec);
  };
  add("Data", DataFlags());
  add("Model", kModelFlags);
  add("Optimizer", OptimizerFlags());
  AddFlag(app, flags, "Optimizer", kClipFlag);
  add("Schedule", ScheduleFlags());
  for (const OwnedFlag& flag : ShapeFlags()) AddFlag(app, flags, "Schedule", flag.spec);
  add("Memory", kMemoryFlags);
  add("Checkpoints", kCheckpointFlags);
  app->add_flag("--resume", flags->resume,
                "Go on from the newest checkpoint in --save DIR; begin anew if there is none")
      ->group("Checkpoints");
  add("Run", kRunFlags);
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

absl::Status OverrideModel(const Flags& flags, ModelConfig* model) {
  constexpr uint64_t kAny = std::numeric_limits<uint32_t>::max();  // Validate knows the bounds
  const auto take = [&](const char* flag, const std::string& text, uint64_t* value) {
    if (text.empty()) return absl::OkStatus();
    GEMINID_ASSIGN_OR_RETURN(*value, base::ParseCount(flag, text, 1, kAny));
    return absl::OkStatus();
  };
  GEMINID_RETURN_IF_ERROR(take("--layers", flags.layers, &model->layers));
  GEMINID_RETURN_IF_ERROR(take("--hidden", flags.hidden, &model->hidden));
  GEMINID_RETURN_IF_ERROR(take("--heads", flags.heads, &model->heads));
  GEMINID_RETURN_IF_ERROR(take("--context", flags.context, &model->context));
  GEMINID_RETURN_IF_ERROR(take("--vocabulary", flags.vocabulary, &model->vocabulary));
  if (!flags.hidden.empty() || !flags.family.empty()) {
    model->intermediate = DefaultIntermediate(model->family, model->hidden);
  }
  if (!flags.heads.empty() || !flags.family.empty()) model->kv_heads = model->heads;
  return Validate(*model);
}

absl::StatusOr<ModelConfig> ParseModel(const Flags& flags) {
  ModelConfig model;
  if (!flags.model.empty()) {
    GEMINID_ASSIGN_OR_RETURN(model, FindPreset(flags.model));
  } else if (flags.family.empty()) {
    return absl::InvalidArgumentError(
        "no model: give --model a name, or --family with --layers, --hidden, --heads and "
        "--context; --help lists the names");
  }
  if (!flags.family.empty()) {
    GEMINID_ASSIGN_OR_RETURN(model.family, ParseFamily(flags.family));
  }
  if (absl::Status status = OverrideModel(flags, &model); !status.ok()) {
    return WithFlag("the model cannot be built", status);
  }
  return model;
}

absl::Status ParseTraining(const Flags& flags, TrainOptions* options) {
  using zero::DataType;
  using zero::Placement;
  GEMINID_ASSIGN_OR_RETURN(options->zero.optimizer, ParseOptimizer(flags));
  GEMINID_ASSIGN_OR_RETURN(options->schedule,
                           ParseSchedule(flags, UsualLearningRate(options->zero.optimizer)));
  GEMINID_ASSIGN_OR_RETURN(options->zero.loss_scale, ParseLossScale(flags));
  GEMINID_ASSIGN_OR_RETURN(options->zero.clip_norm,
                           base::ParseReal("--clip-norm", flags.clip_norm, 0, 1e9));
  GEMINID_ASSIGN_OR_RETURN(
      const uint64_t threads,
      base::ParseCount("--update-threads", flags.update_threads, 1, zero::kMaxUpdateThreads));
  options->zero.update_threads = static_cast<int>(threads);
  GEMINID_ASSIGN_OR_RETURN(
      options->zero.data_type,
      base::ParseWord("--dtype", flags.dtype,
                      std::array{std::pair{Name(DataType::kBFloat16), DataType::kBFloat16},
                                 std::pair{Name(DataType::kFloat32), DataType::kFloat32}}));
  GEMINID_ASSIGN_OR_RETURN(
      options->zero.placement,
      base::ParseWord("--placement", flags.placement,
                      std::array{std::pair{Name(Placement::kDevice), Placement::kDevice},
                                 std::pair{Name(Placement::kCpu), Placement::kCpu},
                                 std::pair{Name(Placement::kAuto), Placement::kAuto}}));
  return absl::OkStatus();
}

absl::Status ParseStatePlacement(const Flags& flags, zero::Options* options) {
  using zero::StatePlacement;
  const std::string& text = flags.optimizer_state;
  if (text == "auto" || text == "host" || text == "device") {
    options->state_placement = text == "auto"   ? StatePlacement::kAuto
                               : text == "host" ? StatePlacement::kHost
                                                : StatePlacement::kDevice;
  } else {
    const absl::StatusOr<double> share = base::ParseReal("--optimizer-state", text, 0, 1);
    if (!share.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--optimizer-state is '", text,
                       "'; it must be auto, host, device, or a number from 0 to 1"));
    }
    options->state_placement = StatePlacement::kShare;
    options->state_share = *share;
  }
  if (text != "auto" && text != "device" && options->placement != zero::Placement::kAuto) {
    return absl::InvalidArgumentError(
        absl::StrCat("--optimizer-state ", text, " needs --placement auto; leave it out"));
  }
  return absl::OkStatus();
}

absl::Status ParseMemory(const Flags& flags, TrainOptions* options) {
  GEMINID_RETURN_IF_ERROR(ParseStatePlacement(flags, &options->zero));
  if (!flags.device.empty()) {
    GEMINID_ASSIGN_OR_RETURN(const uint64_t device,
                             base::ParseCount("--device", flags.device, 0, kDevicesMax - 1));
    options->device = DeviceIndex{static_cast<uint32_t>(device)};
  }
  GEMINID_ASSIGN_OR_RETURN(options->device_memory_bytes,
                           ParseSize("--device-memory", flags.device_memory));
  if (!flags.host_memory.empty()) {
    GEMINID_ASSIGN_OR_RETURN(options->host_memory_bytes,
                             ParseSize("--host-memory", flags.host_memory));
    if (!flags.socket.empty()) {
      return absl::InvalidArgumentError(
          "--host-memory is for a daemon that this run starts; with --socket the daemon has a "
          "limit of its own. Leave one of the two out");
    }
  }
  if (flags.copy_bandwidth == kUnlimited) return absl::OkStatus();
  const absl::StatusOr<uint64_t> speed = base::ParseBytesPerSecond(flags.copy_bandwidth);
  if (!speed.ok()) return WithFlag("--copy-bandwidth", speed.status());
  if (*speed == 0) return absl::InvalidArgumentError("--copy-bandwidth is 0; nothing would move");
  options->copy_bytes_per_second = *speed;
  return absl::OkStatus();
}

absl::Status CheckJob(const std::string& job) {
  const bool characters = std::all_of(job.begin(), job.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
  if (characters && !job.empty() && job.size() <= kJobNameMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--job is '", job, "'; it must be 1 to ", kJobNameMax, " of a-z, 0-9 and -"));
}

absl::Status ParseCheckpoints(const Flags& flags, TrainOptions* options) {
  constexpr uint64_t kMost = 1'000'000'000;  // as many steps as a folder's name has digits for
  if (flags.save.empty() && (flags.resume || !flags.save_every.empty())) {
    return absl::InvalidArgumentError(absl::StrCat(flags.resume ? "--resume" : "--save-every",
                                                   " needs --save DIR, where checkpoints are"));
  }
  options->save = flags.save;
  options->load = flags.load;
  options->resume = flags.resume;
  GEMINID_ASSIGN_OR_RETURN(options->keep, base::ParseCount("--keep", flags.keep, 0, kMost));
  if (flags.save_every.empty()) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(options->save_every,
                           base::ParseCount("--save-every", flags.save_every, 1, kMost));
  return absl::OkStatus();
}

absl::Status ParseRun(const Flags& flags, TrainOptions* options) {
  if (!flags.ranks.empty()) {
    GEMINID_ASSIGN_OR_RETURN(const uint64_t ranks,
                             base::ParseCount("--ranks", flags.ranks, 1, kRanksMax));
    options->ranks = static_cast<int>(ranks);
  }
  GEMINID_ASSIGN_OR_RETURN(const double seconds,
                           base::ParseReal("--timeout", flags.timeout, 1, kTimeoutSecondsMax));
  options->timeout = absl::Seconds(seconds);
  GEMINID_RETURN_IF_ERROR(CheckJob(flags.job));
  options->socket = flags.socket;
  options->job = flags.job;
  options->report = flags.report;
  options->stop_on_nan = flags.stop_on_nan;
  using Mode = std::optional<ProgressMode>;
  GEMINID_ASSIGN_OR_RETURN(
      options->progress,
      base::ParseWord("--progress", flags.progress,
                      std::array{std::pair{"auto", Mode()},
                                 std::pair{"terminal", Mode(ProgressMode::kTerminal)},
                                 std::pair{"lines", Mode(ProgressMode::kLines)},
                                 std::pair{"none", Mode(ProgressMode::kNone)}}));
  if (flags.quiet) options->progress = ProgressMode::kNone;
  return absl::OkStatus();
}

}  // namespace

const char* Name(zero::Placement placement) {
  switch (placement) {
    case zero::Placement::kDevice:
      return "device";
    case zero::Placement::kCpu:
      return "cpu";
    case zero::Placement::kAuto:
      return "auto";
  }
  return "unknown";
}

const char* Name(zero::DataType data_type) {
  return data_type == zero::DataType::kBFloat16 ? "bf16" : "fp32";
}

absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments) {
  CLI::App app("Trains a decoder-only transformer with Geminid.", "geminid-train");
  app.set_version_flag("--version", absl::StrCat("geminid-train ", GEMINID_VERSION));
  Flags flags;
  AddFlags(&app, &flags);
  base::RefuseEmptyValues(&app);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // the last first
  } catch (const CLI::CallForVersion& version) {
    return CommandLine{.options = std::nullopt, .text = absl::StrCat(version.what(), "\n")};
  } catch (const CLI::CallForHelp&) {
    return CommandLine{.options = std::nullopt, .text = app.help()};
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(base::DescribeParseError(app, error));
  }
  TrainOptions options;
  GEMINID_RETURN_IF_ERROR(ParseRun(flags, &options));
  GEMINID_ASSIGN_OR_RETURN(options.model, ParseModel(flags));
  GEMINID_RETURN_IF_ERROR(ParseData(flags, &options));
  GEMINID_RETURN_IF_ERROR(ParseTraining(flags, &options));
  GEMINID_RETURN_IF_ERROR(ParseMemory(flags, &options));
  GEMINID_RETURN_IF_ERROR(ParseCheckpoints(flags, &options));
  return CommandLine{.options = std::move(options), .text = ""};
}

}  // namespace geminid::trainer
