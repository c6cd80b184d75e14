// The machine that geminictl runs on: plans are made for it if no flag names another machine.
#ifndef GEMINID_TOOLS_GEMINICTL_PLAN_THIS_MACHINE_H_
#define GEMINID_TOOLS_GEMINICTL_PLAN_THIS_MACHINE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace geminid::ctl {

struct ThisMachine {
  std::vector<std::string> accelerators;  // the names that their driver gives them, sorted
  std::uint64_t memory_bytes = 0;         // for processes here: the RAM, or the cgroup's limit
};

// Values that cannot be read count as absent. `driver_folder` has one folder for each accelerator.
ThisMachine ReadThisMachine(const std::string& driver_folder = "/proc/driver/nvidia/gpus");

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_PLAN_THIS_MACHINE_H_
