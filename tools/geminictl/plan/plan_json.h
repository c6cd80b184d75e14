// The JSON of geminictl plan: bytes, seconds and counts without rounding or units.
#ifndef GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_JSON_H_
#define GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_JSON_H_

#include <string>

#include "tools/geminictl/plan/plan_view.h"

namespace geminid::ctl {

std::string PlanJson(const PlanAnswer& answer);
std::string ModelListJson();
std::string HardwareListJson();

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_JSON_H_
