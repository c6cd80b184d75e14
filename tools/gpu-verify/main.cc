// geminid-gpu-verify: see options.cc for the usage, docs/gpu-verification.md for the questions.
#include <iostream>
#include <string>
#include <vector>

#include "tools/gpu-verify/driver.h"
#include "tools/gpu-verify/options.h"
#include "tools/gpu-verify/run.h"

int main(int argc, char** argv) {
  using namespace geminid::gpu_verify;  // NOLINT: this file is the program
  Options options;
  std::string error;
  if (!ParseOptions({argv + 1, argv + argc}, Catalogue(), &options, &error)) {
    std::cerr << "geminid-gpu-verify: " << error << "\n" << Usage();
    return kExitUsage;
  }
  if (options.help) {
    std::cout << Usage();
    return 0;
  }
  if (options.list) {
    for (const Probe& probe : options.probes) {
      std::cout << probe.id << "\t" << probe.question << "\n";
    }
    return 0;
  }
  Driver driver;
  Machine machine;
  if (!LoadDriver(&driver, &error) || !DescribeMachine(driver, options.device, &machine, &error)) {
    std::cerr << "geminid-gpu-verify: " << error << "\n";
    return kExitNoDriver;
  }
  machine.quick = options.quick;
  std::cerr << machine.gpu << ", " << Bytes(static_cast<double>(machine.device_bytes))
            << ", driver " << (machine.driver.empty() ? "unknown" : machine.driver) << "\n";
  return RunProbes(driver, options, options.quick ? QuickEffort() : FullEffort(), machine,
                   std::cout, std::cerr);
}
