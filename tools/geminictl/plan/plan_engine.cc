#include "tools/geminictl/plan/plan_engine.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "tools/geminictl/plan/plan_hardware.h"

namespace geminid::ctl {
namespace {

using planner::ActivationPlace;
using planner::OptimizerPlace;

template <typename Place>
std::array<std::size_t, 3> Count(const std::vector<Place>& places) {
  std::array<std::size_t, 3> counts = {};
  for (const Place place : places) ++counts[static_cast<std::size_t>(place)];
  return counts;
}

EnginePart State(const forecast::Forecast& forecast) {
  const auto counts = Count(forecast.plan.decisions.optimizer);
  const std::size_t host = counts[static_cast<std::size_t>(OptimizerPlace::kHost)];
  const std::size_t device = counts[static_cast<std::size_t>(OptimizerPlace::kDevice)];
  const std::size_t streamed = counts[static_cast<std::size_t>(OptimizerPlace::kStreamed)];
  EnginePart part = {.part = "optimizer state",
                     .planned = absl::StrCat(host, " chunks on the host, ", device,
                                             " on the device, ", streamed, " streamed"),
                     .executed = forecast.state_mode.has_value(),
                     .today = ""};
  if (part.executed) {
    part.today = absl::StrCat("--optimizer-state ", forecast::Name(*forecast.state_mode));
  } else if (streamed > 0) {
    part.executed = host == 0 && device == 0;
    part.today =
        part.executed ? "--optimizer-state streamed" : "the engine streams all state or none of it";
  } else {
    part.executed = host == 0 || device == 0;
    part.today = part.executed ? absl::StrCat("--optimizer-state ", host == 0 ? "device" : "host")
                               : "the engine chooses the chunks by a rule of its own";
  }
  return part;
}

EnginePart Activations(const forecast::Forecast& forecast) {
  const std::vector<planner::ActivationItem>& items = forecast.problem.activations;
  const std::vector<ActivationPlace>& places = forecast.plan.decisions.activations;
  const auto counts = Count(places);
  const std::size_t offloaded = counts[static_cast<std::size_t>(ActivationPlace::kOffload)];
  bool recomputed = true;
  for (std::size_t i = 0; i < items.size(); ++i) {
    recomputed &= !items[i].can_recompute || places[i] == ActivationPlace::kRecompute;
  }
  const bool offloads = offloaded > 0 && offloaded == places.size();
  const bool executed = offloads || (recomputed && offloaded == 0);
  const bool keeps = forecast.keeps_activations;
  return {.part = "activations",
          .planned = items.empty() ? "as recorded"
                     : keeps       ? "all are kept on the device"
                     : offloads    ? "all are offloaded to host memory"
                     : executed
                         ? "the input of each part of a layer is kept, the rest is recomputed"
                         : absl::StrCat(counts[0], " kept, ", counts[1], " offloaded, ", counts[2],
                                        " recomputed"),
          .executed = executed,
          .today = !executed ? "the trainer keeps, offloads or recomputes all of a layer's alike"
                   : items.empty() ? ""
                   : keeps         ? "--activations keep"
                   : offloads      ? "--activations offload"
                                   : "--activations recompute"};
}

}  // namespace

bool EngineRunsOn(const forecast::Hardware& hardware) { return hardware.name == kHostDeviceName; }

std::vector<EnginePart> EngineParts(const forecast::Forecast& forecast,
                                    const forecast::Hardware& hardware) {
  std::vector<EnginePart> parts = {{"weights", "loaded and dropped by the plan", true, ""},
                                   State(forecast),
                                   Activations(forecast)};
  if (forecast.plan.disk.used) {
    parts.push_back(
        {"disk", absl::StrCat("holds ", base::FormatBytes(forecast.plan.disk.disk_bytes)),
         forecast.state_mode.has_value(),
         forecast.state_mode.has_value() ? "--state-disk FOLDER"
                                         : "the engine has whole chunks of state there, "
                                           "and no weights"});
  }
  const bool runs = EngineRunsOn(hardware);
  parts.push_back({"device", hardware.name, runs,
                   runs ? "" : "not run on a GPU yet: a host device of as much memory"});
  return parts;
}

}  // namespace geminid::ctl
