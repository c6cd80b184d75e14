#include "tools/geminictl/plan/plan_engine.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "tools/geminictl/plan/plan_hardware.h"

namespace geminid::ctl {
namespace {

using planner::OptimizerPlace;

template <typename Place>
std::array<std::size_t, 3> Count(const std::vector<Place>& places) {
  std::array<std::size_t, 3> counts = {};
  for (const Place place : places) ++counts[static_cast<std::size_t>(place)];
  return counts;
}

EnginePart State(const forecast::Forecast& forecast) {
  const auto counts = Count(forecast.plan.decisions.optimizer);
  return {.part = "optimizer state",
          .planned = absl::StrCat(
              counts[static_cast<std::size_t>(OptimizerPlace::kHost)], " chunks on the host, ",
              counts[static_cast<std::size_t>(OptimizerPlace::kDevice)], " on the device, ",
              counts[static_cast<std::size_t>(OptimizerPlace::kStreamed)], " streamed"),
          .executed = true,
          .today = absl::StrCat("--optimizer-state ", forecast::Name(forecast.state_mode))};
}

// The trainer keeps, offloads or recomputes the activations of all layers alike.
EnginePart Activations(const forecast::Forecast& forecast) {
  const planner::Decisions& decisions = forecast.plan.decisions;
  const bool recorded = forecast.problem.activations.empty();
  const bool offloads = decisions.activation_places > 0;
  EnginePart part = {.part = "activations", .planned = "", .executed = true, .today = ""};
  if (recorded) {
    part.planned = "as recorded";
  } else if (forecast.keeps_activations) {
    part.planned = "all are kept on the device";
    part.today = "--activations keep";
  } else if (offloads) {
    part.planned = absl::StrCat("all are offloaded to host memory but the last ",
                                decisions.activation_places, " of ", decisions.activations.size());
    part.today = "--activations offload";
  } else {
    part.planned = "the input of each part of a layer is kept, the rest is recomputed";
    part.today = "--activations recompute";
  }
  return part;
}

}  // namespace

bool EngineRunsOn(const forecast::Hardware& hardware) { return hardware.name == kHostDeviceName; }

std::vector<EnginePart> EngineParts(const forecast::Forecast& forecast,
                                    const forecast::Hardware& hardware) {
  std::vector<EnginePart> parts = {{"weights", "loaded and dropped by the plan", true, ""},
                                   State(forecast),
                                   Activations(forecast)};
  if (forecast.plan.disk.used) {
    parts.push_back({"disk",
                     absl::StrCat("holds ", base::FormatBytes(forecast.plan.disk.disk_bytes)), true,
                     "--state-disk FOLDER"});
  }
  const bool runs = EngineRunsOn(hardware);
  parts.push_back({"device", hardware.name, runs,
                   runs ? "" : "not run on a GPU yet: a host device of as much memory"});
  return parts;
}

}  // namespace geminid::ctl
