// The arguments of every subcommand.
#ifndef GEMINID_TOOLS_GEMINICTL_OUTPUT_CONTEXT_H_
#define GEMINID_TOOLS_GEMINICTL_OUTPUT_CONTEXT_H_

#include <ostream>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/geminictl/output/style.h"

namespace geminid::ctl {

// A subcommand returns the exit code of its finding, or the error that prevented a finding.
struct Context {
  std::ostream* out = nullptr;  // data
  std::ostream* err = nullptr;  // messages for people
  std::string socket;
  absl::Duration timeout;
  bool json = false;
  Style style;
  bool interactive = false;  // a person reads standard output and types into standard input
};

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_OUTPUT_CONTEXT_H_
