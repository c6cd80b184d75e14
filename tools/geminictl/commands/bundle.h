// geminictl bundle: the files that a remote helper needs, in one archive.
#ifndef GEMINID_TOOLS_GEMINICTL_COMMANDS_BUNDLE_H_
#define GEMINID_TOOLS_GEMINICTL_COMMANDS_BUNDLE_H_

#include <string>

#include "tools/geminictl/output/context.h"

namespace geminid::ctl {

struct BundleOptions {
  std::string output;  // empty: geminid-bundle-TIME.tar.gz in the working folder
  std::string log;     // a file whose end is added; empty: none
};

// Writes a .tar.gz with the JSON of version, doctor, status, sessions, jobs, pools and
// configuration; the metrics and the probes; the kernel's data about this machine; and errors.txt,
// which lists what could not be collected. The archive names jobs, tenants, files and addresses. It
// contains no token, no environment and no contents of chunks. Needs no daemon: without one, its
// answers are missing.
absl::StatusOr<int> RunBundle(const Context& context, const BundleOptions& options);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_COMMANDS_BUNDLE_H_
