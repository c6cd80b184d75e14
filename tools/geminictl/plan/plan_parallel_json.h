// The JSON of geminictl plan --parallel: bytes, seconds and counts without rounding or units.
#ifndef GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_PARALLEL_JSON_H_
#define GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_PARALLEL_JSON_H_

#include <string>

#include "tools/geminictl/plan/plan_parallel_view.h"

namespace geminid::ctl {

std::string ParallelJson(const ParallelAnswer& answer);
std::string ComparedJson(const ComparedAnswer& answer);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_PLAN_PLAN_PARALLEL_JSON_H_
