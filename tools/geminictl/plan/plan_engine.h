// Which parts of a plan today's engine carries out.
#ifndef GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_ENGINE_H_
#define GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_ENGINE_H_

#include <string>
#include <vector>

#include "training/forecast/forecast.h"
#include "training/forecast/hardware.h"

namespace geminid::ctl {

struct EnginePart {
  const char* part;     // of the plan: "optimizer state"
  std::string planned;  // how the part is planned
  bool executed;
  std::string today;  // what the engine does instead, or how to ask for the part
};

// The parts of a plan that fits.
std::vector<EnginePart> EngineParts(const forecast::Forecast& forecast,
                                    const forecast::Hardware& hardware);

// Whether the engine runs on this hardware. So far only a host device counts.
bool EngineRunsOn(const forecast::Hardware& hardware);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_ENGINE_H_
