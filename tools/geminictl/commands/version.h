// geminictl version: the version of this program. Needs no daemon.
#ifndef GEMINID_TOOLS_GEMINICTL_COMMANDS_VERSION_H_
#define GEMINID_TOOLS_GEMINICTL_COMMANDS_VERSION_H_

#include <string>

#include "tools/geminictl/output/context.h"

namespace geminid::ctl {

// "geminictl 0.1.0 (protocol 1)".
std::string VersionLine();

absl::StatusOr<int> RunVersion(const Context& context);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_COMMANDS_VERSION_H_
