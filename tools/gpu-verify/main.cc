// geminid-gpu-verify: see options.cc for the usage, docs/gpu-verification.md for the questions.
#include <cerrno>
#include <iostream>
#include <string>
#include <vector>

#include "base/exit_code.h"
#include "gpu/driver_api.h"
#include "tools/gpu-verify/options.h"
#include "tools/gpu-verify/run.h"

namespace geminid::gpu_verify {
namespace {

int Main(const std::vector<std::string>& arguments) {
  Options options;
  std::string error;
  if (!ParseOptions(arguments, Catalogue(), &options, &error)) {
    std::cerr << "geminid-gpu-verify: " << error << "\n" << Usage();
    return base::kExitUsage;
  }
  if (options.help) {
    std::cout << Usage();
    return base::kExitOk;
  }
  if (options.version) {
    std::cout << "geminid-gpu-verify " GEMINID_VERSION "\n";
    return base::kExitOk;
  }
  if (options.list) {
    for (const Probe& probe : options.probes) {
      std::cout << probe.id << "\t" << probe.question << "\n";
    }
    return base::kExitOk;
  }
  gpu::DriverApi driver;
  Machine machine;
  if (!gpu::LoadDriverApi(&driver, &error) ||
      !DescribeMachine(driver, options.device, &machine, &error)) {
    std::cerr << "geminid-gpu-verify: " << error << "\n";
    return base::kExitUnavailable;
  }
  machine.quick = options.quick;
  std::cerr << machine.gpu << ", " << Bytes(static_cast<double>(machine.device_bytes))
            << ", driver " << (machine.driver.empty() ? "unknown" : machine.driver) << "\n";
  return RunProbes(driver, options, options.quick ? QuickEffort() : FullEffort(), machine,
                   std::cout, std::cerr);
}

}  // namespace
}  // namespace geminid::gpu_verify

int main(int argc, char** argv) {
  const int code = geminid::gpu_verify::Main({argv + 1, argv + argc});
  if (std::cout.flush()) return code;
  const int error = errno;
  std::cerr << "geminid-gpu-verify: standard output: a part of the output was lost\n";
  return error == ENOSPC ? geminid::base::kExitResourceExhausted : geminid::base::kExitFailed;
}
