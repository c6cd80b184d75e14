// geminictl bundle: what somebody who helps from afar would ask for, in one archive.
#ifndef GEMINID_TOOLS_GEMINICTL_COMMANDS_BUNDLE_H_
#define GEMINID_TOOLS_GEMINICTL_COMMANDS_BUNDLE_H_

#include <string>

#include "tools/geminictl/output/context.h"

namespace geminid::ctl {

struct BundleOptions {
  std::string output;  // empty: geminid-bundle-TIME.tar.gz in the working folder
  std::string log;     // a file whose end goes into it; empty: none
};

// Writes a .tar.gz: the JSON of version, doctor, status, sessions, jobs, pools and configuration,
// the metrics and the probes, what the kernel says of this machine, and what could not be had, in
// errors.txt. It has names of jobs, tenants, files and addresses, but no token, no environment and
// nothing of what lies in chunks. Needs no daemon: what one would have said is then missing.
absl::StatusOr<int> RunBundle(const Context& context, const BundleOptions& options);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_COMMANDS_BUNDLE_H_
