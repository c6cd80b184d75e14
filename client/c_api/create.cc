// geminid_engine: creation from parameters and options.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "client/c_api/arguments.h"
#include "client/c_api/engine_calls.h"
#include "client/c_api/errors.h"
#include "client/c_api/objects.h"
#include "client/c_api/optimizer.h"
#include "client/checkpoint/contents.h"
#include "geminid/c_api.h"
#include "geminid/loss_scaler.h"
#include "geminid/zero.h"

namespace geminid::c_api {
namespace {

constexpr size_t kMaxDimensions = 64;

// The numbers in c_api.h are those of the enumerators in order, counted from 1.
zero::DataType ToType(int32_t type) {
  static_assert(static_cast<int32_t>(zero::DataType::kUint8) + 1 == GEMINID_UINT8);
  return static_cast<zero::DataType>(type - GEMINID_BFLOAT16);
}

absl::StatusOr<zero::Parameter> ToParameter(const geminid_parameter& given) {
  zero::Parameter parameter;
  GEMINID_ASSIGN_OR_RETURN(parameter.name, Text(given.name, "name"));
  if (given.dimensions > 0) GEMINID_RETURN_IF_ERROR(CheckGiven(given.shape, "shape"));
  GEMINID_RETURN_IF_ERROR(
      CheckNumber(static_cast<int64_t>(given.dimensions), 0, kMaxDimensions, "dimensions"));
  parameter.shape.assign(given.shape, given.shape + given.dimensions);
  GEMINID_RETURN_IF_ERROR(
      CheckNumber(given.data_type, GEMINID_DEFAULT_TYPE, GEMINID_UINT8, "data_type"));
  if (given.data_type != GEMINID_DEFAULT_TYPE) parameter.data_type = ToType(given.data_type);
  GEMINID_RETURN_IF_ERROR(CheckNumber(given.unit, -1, UINT32_MAX, "unit"));
  if (given.unit >= 0) parameter.unit = static_cast<uint32_t>(given.unit);
  parameter.trainable = given.trainable != 0;
  parameter.decay = given.decay != 0;
  parameter.weight_decay = UnlessNan(given.weight_decay);
  parameter.learning_rate_scale = given.learning_rate_scale;
  parameter.backward_uses = given.backward_uses;
  parameter.separate_gradient = given.separate_gradient != 0;
  parameter.orthogonal = given.orthogonal != 0;
  parameter.update_without_gradient = given.update_without_gradient != 0;
  parameter.group = given.group;
  return parameter;
}

// Headers without Muon had all fields before `orthogonal`.
constexpr Growth<geminid_parameter> kGrowthOfParameter = {
    .least = offsetof(geminid_parameter, orthogonal), .init = geminid_parameter_init};

absl::StatusOr<std::vector<zero::Parameter>> ToParameters(const geminid_parameter* given,
                                                          size_t count) {
  std::vector<zero::Parameter> parameters;
  if (count > 0) GEMINID_RETURN_IF_ERROR(CheckGiven(given, "parameters"));
  for (size_t i = 0; i < count; ++i) {
    GEMINID_ASSIGN_OR_RETURN(const geminid_parameter read,
                             ReadElement(given, i, "parameter", kGrowthOfParameter));
    absl::StatusOr<zero::Parameter> parameter = ToParameter(read);
    if (!parameter.ok()) {
      return absl::Status(parameter.status().code(),
                          absl::StrCat("parameter ", i, ": ", parameter.status().message()));
    }
    parameters.push_back(*std::move(parameter));
  }
  return parameters;
}

absl::StatusOr<std::optional<LossScalerOptions>> ToLossScaler(const geminid_loss_scaler* given) {
  if (given == nullptr) return std::nullopt;
  GEMINID_ASSIGN_OR_RETURN(const geminid_loss_scaler read, Read(given, "loss_scaler"));
  return LossScalerOptions{.initial_scale = read.initial_scale,
                           .growth_factor = read.growth_factor,
                           .backoff_factor = read.backoff_factor,
                           .growth_interval = read.growth_interval,
                           .hysteresis = read.hysteresis,
                           .min_scale = read.min_scale,
                           .max_scale = read.max_scale};
}

absl::Status CheckNumbers(const geminid_engine_options& given) {
  GEMINID_RETURN_IF_ERROR(
      CheckNumber(given.data_type, GEMINID_BFLOAT16, GEMINID_FLOAT32, "data_type"));
  GEMINID_RETURN_IF_ERROR(
      CheckNumber(given.state_type, GEMINID_BFLOAT16, GEMINID_FLOAT32, "state_type"));
  GEMINID_RETURN_IF_ERROR(
      CheckNumber(given.stage, GEMINID_STAGE_STATE, GEMINID_STAGE_WEIGHTS, "stage"));
  GEMINID_RETURN_IF_ERROR(
      CheckNumber(given.placement, GEMINID_PLACE_DEVICE, GEMINID_PLACE_AUTO, "placement"));
  GEMINID_RETURN_IF_ERROR(CheckNumber(given.state_placement, GEMINID_STATE_AUTO,
                                      GEMINID_STATE_ON_DISK, "state_placement"));
  GEMINID_RETURN_IF_ERROR(CheckNumber(given.gradient_scale, GEMINID_GRADIENT_MEAN,
                                      GEMINID_GRADIENT_SUM, "gradient_scale"));
  GEMINID_RETURN_IF_ERROR(CheckNumber(given.not_finite, GEMINID_NOT_FINITE_SKIP,
                                      GEMINID_NOT_FINITE_FAIL, "not_finite"));
  return CheckNumber(given.update, GEMINID_UPDATE_AFTER_STEP, GEMINID_UPDATE_IN_BACKWARD, "update");
}

// Headers without state_type had all fields before it.
constexpr Growth<geminid_engine_options> kGrowthOfEngineOptions = {
    .least = offsetof(geminid_engine_options, state_type), .init = geminid_engine_options_init};

absl::StatusOr<zero::StateDisk> ToStateDisk(const geminid_engine_options& given) {
  zero::StateDisk disk{.limit_bytes = given.state_disk_limit_bytes,
                       .endurance_bytes = given.state_disk_endurance_bytes};
  if (given.state_disk_folder_count == 0) return disk;
  GEMINID_RETURN_IF_ERROR(CheckGiven(given.state_disk_folders, "state_disk_folders"));
  for (size_t index = 0; index < given.state_disk_folder_count; ++index) {
    const std::string name = absl::StrCat("state_disk_folders[", index, "]");
    GEMINID_RETURN_IF_ERROR(CheckGiven(given.state_disk_folders[index], name.c_str()));
    disk.folders.emplace_back(given.state_disk_folders[index]);
  }
  return disk;
}

absl::StatusOr<zero::Options> ToOptions(const geminid_engine_options& given) {
  GEMINID_RETURN_IF_ERROR(CheckNumbers(given));
  zero::Options options;
  GEMINID_ASSIGN_OR_RETURN(options.optimizer, ToOptimizer(given.optimizer));
  GEMINID_ASSIGN_OR_RETURN(options.loss_scale, ToLossScaler(given.loss_scaler));
  options.data_type = ToType(given.data_type);
  options.state_type = ToType(given.state_type);
  options.stage = static_cast<zero::Stage>(given.stage);
  options.placement = static_cast<zero::Placement>(given.placement);
  options.state_placement = static_cast<zero::StatePlacement>(given.state_placement);
  options.gradient_scale = static_cast<zero::GradientScale>(given.gradient_scale);
  options.update = static_cast<zero::UpdateTime>(given.update);
  options.not_finite = static_cast<zero::NotFinite>(given.not_finite);
  options.accumulate = given.accumulate;
  options.stable_addresses = given.stable_addresses != 0;
  options.max_lookahead_moments = given.max_lookahead_moments;
  options.update_threads = given.update_threads;
  options.resume = given.resume != 0;
  options.state_share = given.state_share;
  GEMINID_ASSIGN_OR_RETURN(options.state_disk, ToStateDisk(given));
  options.clip_norm = given.clip_norm;
  options.chunk_elements = given.chunk_elements;
  GEMINID_ASSIGN_OR_RETURN(options.timeout, SecondsOf(given.timeout_seconds, "timeout_seconds"));
  return options;
}

}  // namespace
}  // namespace geminid::c_api

using namespace geminid::c_api;  // below is the interface, outside of any namespace

void geminid_parameter_init(geminid_parameter* parameter, size_t struct_size) {
  const geminid::zero::Parameter defaults;
  geminid_parameter filled = {};
  filled.trainable = defaults.trainable ? 1 : 0;
  filled.decay = defaults.decay ? 1 : 0;
  filled.backward_uses = defaults.backward_uses;
  filled.separate_gradient = defaults.separate_gradient ? 1 : 0;
  filled.orthogonal = defaults.orthogonal ? 1 : 0;
  filled.update_without_gradient = defaults.update_without_gradient ? 1 : 0;
  filled.unit = -1;
  filled.weight_decay = NAN;
  filled.learning_rate_scale = defaults.learning_rate_scale;
  Init(parameter, struct_size, filled);
}

void geminid_loss_scaler_init(geminid_loss_scaler* scaler, size_t struct_size) {
  const geminid::LossScalerOptions defaults;
  geminid_loss_scaler filled = {};
  filled.initial_scale = defaults.initial_scale;
  filled.growth_factor = defaults.growth_factor;
  filled.backoff_factor = defaults.backoff_factor;
  filled.min_scale = defaults.min_scale;
  filled.max_scale = defaults.max_scale;
  filled.growth_interval = defaults.growth_interval;
  filled.hysteresis = defaults.hysteresis;
  Init(scaler, struct_size, filled);
}

void geminid_engine_options_init(geminid_engine_options* options, size_t struct_size) {
  const geminid::zero::Options defaults;
  geminid_engine_options filled = {};
  filled.data_type = GEMINID_BFLOAT16;
  filled.state_type = GEMINID_FLOAT32;
  filled.stage = static_cast<int32_t>(defaults.stage);
  filled.placement = static_cast<int32_t>(defaults.placement);
  filled.state_placement = static_cast<int32_t>(defaults.state_placement);
  filled.gradient_scale = static_cast<int32_t>(defaults.gradient_scale);
  filled.update = static_cast<int32_t>(defaults.update);
  filled.not_finite = static_cast<int32_t>(defaults.not_finite);
  filled.accumulate = defaults.accumulate;
  filled.max_lookahead_moments = defaults.max_lookahead_moments;
  filled.update_threads = defaults.update_threads;
  filled.clip_norm = defaults.clip_norm;
  filled.timeout_seconds = absl::ToDoubleSeconds(defaults.timeout);
  Init(options, struct_size, filled);
}

geminid_code geminid_engine_create(geminid_session* session, geminid_ranks* ranks,
                                   const geminid_parameter* parameters, size_t parameter_count,
                                   const geminid_engine_options* options, geminid_engine** engine,
                                   geminid_error* error) {
  return Guarded(error, [&]() -> absl::Status {
    GEMINID_RETURN_IF_ERROR(CheckGiven(engine, "engine"));
    GEMINID_ASSIGN_OR_RETURN(auto of_session, Sessions().Find(session));
    GEMINID_ASSIGN_OR_RETURN(auto of_ranks, AllRanks().Find(ranks));
    GEMINID_ASSIGN_OR_RETURN(auto all, ToParameters(parameters, parameter_count));
    GEMINID_RETURN_IF_ERROR(geminid::checkpoint::CheckNames(all));  // not first where it is saved
    GEMINID_ASSIGN_OR_RETURN(const geminid_engine_options read,
                             Read(options, "options", kGrowthOfEngineOptions));
    GEMINID_ASSIGN_OR_RETURN(auto chosen, ToOptions(read));
    const geminid::zero::DataType data_type = chosen.data_type;
    GEMINID_ASSIGN_OR_RETURN(
        auto made, geminid::zero::Engine::Create(of_session->session.get(), of_ranks->Take().ranks,
                                                 all, std::move(chosen)));
    *engine = Engines().Add(std::make_shared<EngineObject>(
        std::move(of_session), std::move(of_ranks), std::move(all), data_type, std::move(made)));
    return absl::OkStatus();
  });
}

void geminid_engine_free(geminid_engine** engine) { Engines().Free(engine); }

geminid_code geminid_engine_health(geminid_engine* engine, geminid_error* error) {
  return OnEngine(engine, error, [](EngineObject& object) { return object.engine().health(); });
}
