// The judgement of geminictl doctor: pure, from findings to verdicts.
#ifndef GEMINID_TOOLS_GEMINICTL_DOCTOR_CHECKS_H_
#define GEMINID_TOOLS_GEMINICTL_DOCTOR_CHECKS_H_

#include <string>
#include <vector>

#include "tools/geminictl/doctor/findings.h"

namespace geminid::ctl {

// kWarn: geminid works, but worse than it could. kFail: geminid will not work. kSkip: not judged,
// because no daemon answered.
enum class Verdict { kPass, kWarn, kFail, kSkip };
const char* Name(Verdict verdict);

struct Check {
  std::string id;  // snake_case, stable: scripts look for it
  Verdict verdict = Verdict::kPass;
  std::string found;
  std::string fix;  // empty when there is nothing to fix
};

// One check per requirement, always the same ids in the same order.
std::vector<Check> JudgeMachine(const MachineFindings& found);
std::vector<Check> JudgeDaemon(const SocketFindings& socket, const MachineFindings& machine,
                               const std::string& own_version);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_DOCTOR_CHECKS_H_
