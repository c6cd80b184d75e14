// geminictl without its main(), so that tests run it within their own process.
#ifndef GEMINID_TOOLS_GEMINICTL_PROGRAM_RUN_H_
#define GEMINID_TOOLS_GEMINICTL_PROGRAM_RUN_H_

#include <ostream>
#include <string>
#include <vector>

#include "tools/geminictl/output/style.h"

namespace geminid::ctl {

struct Environment {
  std::ostream* out = nullptr;
  std::ostream* err = nullptr;
  bool in_is_terminal = false;  // and this process is in its foreground
  bool out_is_terminal = false;
  Variables variables;
};

// Returns the exit code; see exit_code.h. `arguments` are without the program's name.
int RunGeminictl(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_PROGRAM_RUN_H_
