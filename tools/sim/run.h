// geminid-sim within a process: everything but main().
#ifndef GEMINID_TOOLS_SIM_RUN_H_
#define GEMINID_TOOLS_SIM_RUN_H_

#include <ostream>
#include <string>
#include <vector>

namespace geminid::sim {

// `arguments` without the program's name. Results go to `out`, messages to `err`. Returns the exit
// code: 0, 1 failed, 2 usage, 7 it does not fit.
int RunGeminidSim(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_RUN_H_
