// Runs probes one after the other and reports.
#ifndef GEMINID_TOOLS_GPU_VERIFY_RUN_H_
#define GEMINID_TOOLS_GPU_VERIFY_RUN_H_

#include <ostream>
#include <string>

#include "gpu/driver_api.h"
#include "tools/gpu-verify/options.h"
#include "tools/gpu-verify/outcome.h"

namespace geminid::gpu_verify {

// Asks the driver in a process of its own, within a time limit. False, with `error` set, if the
// driver does not start or has no such device.
bool DescribeMachine(const gpu::DriverApi& driver, int device, Machine* machine,
                     std::string* error);

// Runs options.probes in turn, each isolated: writes lines to `out`, progress to `log`, and JSON to
// the file after each probe. Returns the exit code.
int RunProbes(const gpu::DriverApi& driver, const Options& options, const Effort& effort,
              const Machine& machine, std::ostream& out, std::ostream& log);

}  // namespace geminid::gpu_verify

#endif  // GEMINID_TOOLS_GPU_VERIFY_RUN_H_
