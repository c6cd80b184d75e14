// geminictl config show: the configuration in force.
#ifndef GEMINID_TOOLS_GEMINICTL_COMMANDS_CONFIG_SHOW_H_
#define GEMINID_TOOLS_GEMINICTL_COMMANDS_CONFIG_SHOW_H_

#include "tools/geminictl/output/context.h"

namespace geminid::ctl {

absl::StatusOr<int> RunConfigShow(const Context& context, bool with_origins);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_COMMANDS_CONFIG_SHOW_H_
