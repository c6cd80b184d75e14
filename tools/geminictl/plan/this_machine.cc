#include "tools/geminictl/plan/this_machine.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "daemon/os/machine.h"

namespace geminid::ctl {
namespace {

std::string ModelOf(const std::filesystem::path& information) {
  std::ifstream file(information);
  for (std::string line; std::getline(file, line);) {
    absl::string_view rest = line;
    if (absl::ConsumePrefix(&rest, "Model:")) {
      return std::string(absl::StripAsciiWhitespace(rest));
    }
  }
  return "";
}

}  // namespace

ThisMachine ReadThisMachine(const std::string& driver_folder) {
  ThisMachine machine;
  const os::Machine found = os::ReadMachine();
  machine.memory_bytes = found.cgroup_limit_bytes.value_or(found.ram_bytes);
  std::error_code error;
  for (std::filesystem::directory_iterator entry(driver_folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string model = ModelOf(entry->path() / "information");
    if (!model.empty()) machine.accelerators.push_back(std::move(model));
  }
  std::sort(machine.accelerators.begin(), machine.accelerators.end());
  return machine;
}

}  // namespace geminid::ctl
