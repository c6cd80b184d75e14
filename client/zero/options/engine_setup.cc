#include "client/zero/options/engine_setup.h"

#include <cmath>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "client/disk/striped_files.h"
#include "client/src/session_internal.h"
#include "client/zero/basics/data_types.h"
#include "client/zero/core/extent.h"
#include "client/zero/options/optimizer_options.h"

namespace geminid::zero {
namespace {

// Larger numbers, of which kernels multiply up to three in fp32, are mistakes.
constexpr double kRateMax = 1e12;

bool IsRate(double value) { return value >= 0 && value <= kRateMax; }

// 0: a dimension is not positive. More than kMaxElements: too many, of which the number may be
// wrong.
uint64_t ElementsOf(const Parameter& parameter) {
  uint64_t elements = 1;
  for (int64_t dimension : parameter.shape) {
    if (dimension <= 0) return 0;
    if (static_cast<uint64_t>(dimension) > kMaxElements / elements) return kMaxElements + 1;
    elements *= static_cast<uint64_t>(dimension);
  }
  return elements;
}

std::function<absl::Time()> ClockOf(const Options& options) {
  if (!options.clock) return [] { return base::MonotonicNow(); };
  return [clock = options.clock, mutex = std::make_shared<std::mutex>()] {
    const std::lock_guard lock(*mutex);
    return clock();
  };
}

bool IsOnGpu(const Session* session) {
  return session != nullptr && session->device_description().kind == DeviceKind::kCuda;
}

// No GPU kernel makes matrices orthogonal, so with Muon on a GPU the state stays on the host.
Options WithPlaceOfState(const Session* session, Options options) {
  const bool automatic =
      options.state_placement == StatePlacement::kAuto && options.placement != Placement::kDevice;
  if (IsMuon(options.optimizer) && IsOnGpu(session) && automatic &&
      options.state_disk.folders.empty()) {
    options.state_placement = StatePlacement::kHost;
  }
  return options;
}

absl::Status CheckCounts(const Options& options) {
  if (options.chunk_elements > kMaxElements) {
    return absl::InvalidArgumentError(absl::StrCat("chunk_elements is ", options.chunk_elements,
                                                   "; it must be at most ", kMaxElements,
                                                   ", or 0 for a size that is searched for"));
  }
  if (options.accumulate < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("accumulate is ", options.accumulate, "; it must be at least 1"));
  }
  if (options.max_lookahead_moments < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_lookahead_moments is ", options.max_lookahead_moments, "; it must be 0 or more"));
  }
  if (options.micro_batch_parts < 1 || (options.micro_batch_parts > 1 && options.accumulate == 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "micro_batch_parts is ", options.micro_batch_parts, " with accumulate ", options.accumulate,
        "; it must be 1, or more where a step has several micro-batches"));
  }
  if (options.update_threads < 1 || options.update_threads > kMaxUpdateThreads) {
    return absl::InvalidArgumentError(absl::StrCat("update_threads is ", options.update_threads,
                                                   "; it must be from 1 to ", kMaxUpdateThreads));
  }
  return absl::OkStatus();
}

// NaN is refused, too.
absl::Status CheckClipNorm(double norm) {
  if (norm >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("clip_norm is ", norm, "; it must be 0 (off) or above"));
}

absl::Status CheckRate(const char* name, double value) {
  if (IsRate(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, "; it must be from 0 to ", kRateMax));
}

absl::Status CheckGroup(const Engine::GroupInput& group, const Optimizer& optimizer) {
  GEMINID_RETURN_IF_ERROR(CheckRate("learning_rate", group.learning_rate));
  GEMINID_RETURN_IF_ERROR(CheckRate("weight_decay", group.weight_decay.value_or(0)));
  return WithOwn(optimizer, group).status();
}

}  // namespace

EngineSetup::EngineSetup(Session* of_session, collectives::Communicator* ranks,
                         std::vector<Parameter> of_model, Options given)
    : session(of_session),
      communicator(ranks),
      parameters(std::move(of_model)),
      options(WithPlaceOfState(of_session, std::move(given))),
      clock(ClockOf(options)) {}

absl::Status EngineSetup::MakeLayout() {
  std::vector<TensorShape> shapes;
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters) {
    elements.push_back(ElementsOf(parameter));
    shapes.push_back({.elements = elements.back(),
                      .trainable = parameter.trainable,
                      .type = TypeOf(parameter, options),
                      .unit = parameter.unit,
                      .whole = IsMatrix(parameter, options.optimizer)});
    names.push_back(parameter.name);
  }
  GEMINID_ASSIGN_OR_RETURN(layout,
                           zero::MakeLayout(shapes, {.world_size = communicator->WorldSize(),
                                                     .chunk_elements = options.chunk_elements,
                                                     .extent_bytes = kExtentAlignmentBytes}));
  NameChunks(names, &layout);
  return absl::OkStatus();
}

absl::Status EngineSetup::Check() const {
  if (session->arena_bytes() == 0) {
    return absl::InvalidArgumentError(
        "the session has no device arena; connect with device_memory_bytes");
  }
  if (options.timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("timeout is ", absl::FormatDuration(options.timeout), "; it must be above 0"));
  }
  GEMINID_RETURN_IF_ERROR(CheckCounts(options));
  GEMINID_RETURN_IF_ERROR(CheckClipNorm(options.clip_norm));
  if (options.resume && !IsOfRun(*session)) {
    return absl::InvalidArgumentError(
        "resume needs a session with the name of a run; connect with ConnectOptions::run, or leave "
        "resume out");
  }
  GEMINID_RETURN_IF_ERROR(CheckNotFinite());
  GEMINID_RETURN_IF_ERROR(CheckStage());
  GEMINID_RETURN_IF_ERROR(CheckOptimizer(options.optimizer));
  GEMINID_RETURN_IF_ERROR(CheckStateType(options.optimizer, options.state_type));
  if (updates_in_backward()) GEMINID_RETURN_IF_ERROR(CheckUpdatesInBackward());
  GEMINID_RETURN_IF_ERROR(CheckAllRanks());
  if (!(options.state_share >= 0 && options.state_share <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("state_share is ", options.state_share, "; it must be from 0 to 1"));
  }
  const bool at_home = options.state_placement == StatePlacement::kHost ||
                       options.state_placement == StatePlacement::kStreamed ||
                       options.state_placement == StatePlacement::kDisk;
  if (options.placement == Placement::kDevice && at_home) {
    return absl::InvalidArgumentError(
        "with placement device the optimizer's state is on the device too; use state placement "
        "auto or device, or placement auto");
  }
  GEMINID_RETURN_IF_ERROR(CheckStateDisk());
  const bool on_host = options.placement != Placement::kDevice &&
                       (options.state_placement == StatePlacement::kHost || has_disk());
  if (IsMuon(options.optimizer) && IsOnGpu(session) && !on_host) {
    return absl::UnimplementedError(
        "muon has no kernels for a GPU, and updates state in host memory alone; use state "
        "placement "
        "host, and placement auto or cpu");
  }
  std::set<std::string> names;
  for (const Parameter& parameter : parameters) {
    if (!names.insert(parameter.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("two parameters are called '", parameter.name, "'"));
    }
    GEMINID_RETURN_IF_ERROR(CheckParameter(parameter));
  }
  return absl::OkStatus();
}

bool EngineSetup::state_stays(bool any_on_disk) const {
  return (any_on_disk && NeedsSums(options.optimizer)) ||
         (IsMuon(options.optimizer) && IsOnGpu(session));
}

absl::Status EngineSetup::CheckStateDisk() const {
  const bool is_auto = options.state_placement == StatePlacement::kAuto;
  const bool wants_disk = options.state_placement == StatePlacement::kDisk;
  if (!has_disk() && !wants_disk) return absl::OkStatus();
  if (!is_auto && !wants_disk) {
    return absl::InvalidArgumentError(
        "Options::state_disk names folders, and the state placement is neither auto nor disk; name "
        "none, or use StatePlacement::kDisk or kAuto");
  }
  if (options.placement == Placement::kDevice) {
    return absl::InvalidArgumentError(
        "Options::state_disk names folders, and with placement device all state is on the device; "
        "name none, or use placement auto or cpu");
  }
  return disk::CheckFolders(options.state_disk.folders);
}

absl::Status EngineSetup::CheckNotFinite() const {
  if (options.loss_scale.has_value()) {
    GEMINID_RETURN_IF_ERROR(CheckLossScaler(*options.loss_scale));
    if (options.not_finite != NotFinite::kSkip) {
      return absl::InvalidArgumentError(
          "loss scaling finds its scale by steps that are not finite, and skips them; leave "
          "Options::not_finite at kSkip");
    }
  }
  if (options.not_finite == NotFinite::kWrite && NeedsSums(options.optimizer)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Name(options.optimizer),
                     " needs sums over whole tensors, which are finite: with it steps "
                     "that are not are skipped or fail (Options::not_finite)"));
  }
  return absl::OkStatus();
}

absl::Status EngineSetup::CheckStage() const {
  if (options.stage < Stage::kState || options.stage > Stage::kWeights) {
    return absl::InvalidArgumentError(absl::StrCat("there is no ZeRO stage ",
                                                   static_cast<int>(options.stage),
                                                   "; there are 1 (kState), 2 (kGradients) and 3 "
                                                   "(kWeights)"));
  }
  if (weights_stay() && options.placement == Placement::kCpu) {
    return absl::InvalidArgumentError(
        absl::StrCat("in ZeRO's stage ", static_cast<int>(options.stage),
                     " weights stay on the device, and with placement cpu they leave it after each "
                     "operator; use stage 3, or another placement"));
  }
  if (weights_stay() && options.host_ranks != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("in ZeRO's stage ", static_cast<int>(options.stage),
                     " each rank keeps all weights from one update to the next, and gathers "
                     "nothing again within its host; use stage 3, or leave Options::host_ranks "
                     "out"));
  }
  return absl::OkStatus();
}

// Ranks that resume pass the step to ranks of other parts, so all parameters need the same one.
absl::Status EngineSetup::CheckAllRanks() const {
  if (options.all_ranks == nullptr && options.model.empty()) return absl::OkStatus();
  if (options.all_ranks == nullptr) {
    return absl::InvalidArgumentError(
        "Options::model describes a model whose parts are on different ranks; give "
        "Options::all_ranks, too");
  }
  const char* why = nullptr;
  if (NeedsSums(options.optimizer) && options.model.empty()) {
    why = "the optimizer has numbers for each tensor; list the tensors in Options::model";
  }
  for (const Parameter& parameter : parameters) {
    if (!parameter.update_without_gradient) why = "some parameters may be left out of a step";
  }
  if (why == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the engines of a model's parts cannot resume together (Options::all_ranks): ", why));
}

// Each element's update may need nothing but the element's own gradient.
absl::Status EngineSetup::CheckUpdatesInBackward() const {
  const char* why = nullptr;
  if (options.clip_norm > 0) why = "clipping needs the norm of the whole gradient first";
  if (options.loss_scale.has_value()) why = "loss scaling may leave a whole step out";
  if (options.accumulate > 1) why = "gradients are complete with the last micro-batch only";
  if (NeedsSums(options.optimizer)) why = "the optimizer needs sums over whole tensors first";
  for (const Parameter& parameter : parameters) {
    if (!parameter.update_without_gradient) {
      why = "which parameters have no gradient is known at the step's end only";
    }
  }
  if (why == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("parameters cannot be updated in the backward pass: ", why));
}

absl::Status EngineSetup::CheckParameter(const Parameter& parameter) const {
  if (ElementsOf(parameter) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter '", parameter.name, "' has a dimension that is not positive"));
  }
  if (ElementsOf(parameter) > kMaxElements) {
    return absl::InvalidArgumentError(absl::StrCat("parameter '", parameter.name,
                                                   "' has more than the ", kMaxElements,
                                                   " elements that a model can have"));
  }
  const DataType type = TypeOf(parameter, options);
  if (Name(type) == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter '", parameter.name, "' has data type ", static_cast<int>(type),
                     ", which does not exist; parameters are of bf16 or fp32, and frozen ones also "
                     "of fp16, int8 or uint8"));
  }
  if (parameter.trainable && !IsTrained(type)) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter '", parameter.name, "' is of ", Name(type),
                     ", which is for frozen parameters; train it in bf16 or fp32, or freeze it "
                     "(Parameter::trainable)"));
  }
  if (!IsRate(parameter.learning_rate_scale) || !IsRate(parameter.weight_decay.value_or(0))) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter '", parameter.name, "' has the learning_rate_scale ",
                     parameter.learning_rate_scale, " and the weight_decay ",
                     parameter.weight_decay.value_or(0), "; they must be from 0 to ", kRateMax));
  }
  if (IsMatrix(parameter, options.optimizer)) GEMINID_RETURN_IF_ERROR(CheckMatrix(parameter));
  if (parameter.backward_uses < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter '", parameter.name, "' has negative backward_uses; 0 stands for any number"));
  }
  return absl::OkStatus();
}

absl::Status EngineSetup::CheckMatrix(const Parameter& parameter) const {
  const char* why = nullptr;
  if (parameter.shape.size() < 2) why = "has fewer than two dimensions";
  if (parameter.pieces.has_value()) why = "is a shard of a tensor (Parameter::pieces)";
  if (why == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("parameter '", parameter.name, "' ", why,
                   ", and only a whole matrix can be made orthogonal; leave it to AdamW "
                   "(Parameter::orthogonal), or take another optimizer"));
}

absl::Status EngineSetup::CheckStep(const Engine::StepInput& input) const {
  GEMINID_RETURN_IF_ERROR(CheckRate("learning_rate", input.learning_rate));
  for (size_t i = 0; i < input.groups.size(); ++i) {
    absl::Status group = CheckGroup(input.groups[i], options.optimizer);
    if (group.ok()) continue;
    return absl::Status(group.code(), absl::StrCat("group ", i, ": ", group.message()));
  }
  if (options.all_ranks != nullptr && !input.groups.empty()) {
    return absl::InvalidArgumentError(
        "the ranks of other parts of the model do not know this part's groups; leave "
        "Options::all_ranks out, or groups");
  }
  if (!std::isfinite(input.gradient_scale) || input.gradient_scale <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("gradient_scale is ", input.gradient_scale,
                                                   "; it must be finite and above 0"));
  }
  if (updates_in_backward() && input.gradient_scale != 1) {
    return absl::InvalidArgumentError(
        "parameters that are updated in the backward pass cannot be updated with scaled gradients; "
        "leave gradient_scale 1, or take UpdateTime::kAfterStep");
  }
  if (input.gradient_norm.value_or(0) < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("gradient_norm is ", *input.gradient_norm, "; it must not be negative"));
  }
  GEMINID_RETURN_IF_ERROR(CheckClipNorm(input.clip_norm.value_or(0)));
  for (const Parameter& parameter : parameters) {
    if (input.groups.empty() || parameter.group < input.groups.size()) continue;
    return absl::InvalidArgumentError(absl::StrCat("parameter '", parameter.name, "' is of group ",
                                                   parameter.group, "; Step has ",
                                                   input.groups.size(), " groups"));
  }
  return absl::OkStatus();
}

absl::Status EngineSetup::CheckId(ParameterId id) const {
  if (static_cast<uint32_t>(id) < parameters.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no parameter ", static_cast<uint32_t>(id), "; there are ", parameters.size()));
}

std::string EngineSetup::NamesIn(uint32_t chunk) const {
  const std::vector<uint32_t>& tensors = layout.chunks[chunk].tensors;
  std::string first = absl::StrCat("'", parameters[tensors.front()].name, "'");
  if (tensors.size() == 1) return first;
  return absl::StrCat(first, " to '", parameters[tensors.back()].name, "'");
}

absl::StatusOr<std::unique_ptr<kernels::ThreadPool>> EngineSetup::MakeUpdatePool() const {
  std::unique_ptr<kernels::ThreadPool> pool;
  if (kernels::ThreadPool::Create({.threads = static_cast<size_t>(options.update_threads)},
                                  &pool) != kernels::Status::kOk) {
    return absl::ResourceExhaustedError(absl::StrCat("the system gives no ", options.update_threads,
                                                     " threads; use fewer update_threads"));
  }
  return pool;
}

}  // namespace geminid::zero
