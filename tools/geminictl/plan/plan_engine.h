// What of a plan today's engine carries out.
#ifndef GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_ENGINE_H_
#define GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_ENGINE_H_

#include <string>
#include <vector>

#include "training/forecast/forecast.h"
#include "training/forecast/hardware.h"

namespace geminid::ctl {

struct EnginePart {
  const char* part;     // what is planned: "optimizer state"
  std::string planned;  // how
  bool executed;
  std::string today;  // what is so instead, or how to ask for it
};

// Of a plan that fits, part by part.
std::vector<EnginePart> EngineParts(const forecast::Forecast& forecast,
                                    const forecast::Hardware& hardware);

// The engine has no CUDA: of all hardware, a host device runs.
bool EngineRunsOn(const forecast::Hardware& hardware);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_ENGINE_H_
