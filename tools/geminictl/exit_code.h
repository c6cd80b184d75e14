// What geminictl tells the shell: one table for every subcommand.
#ifndef GEMINID_TOOLS_GEMINICTL_EXIT_CODE_H_
#define GEMINID_TOOLS_GEMINICTL_EXIT_CODE_H_

#include "absl/status/status.h"

namespace geminid::ctl {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;             // anything not named below
inline constexpr int kExitUsage = 2;              // wrong arguments
inline constexpr int kExitUnavailable = 3;        // the daemon is not reachable
inline constexpr int kExitNotFound = 4;           // no such session, chunk, ...
inline constexpr int kExitPermission = 5;         // not allowed
inline constexpr int kExitDeadline = 6;           // the daemon did not answer in time
inline constexpr int kExitResourceExhausted = 7;  // it does not fit
inline constexpr int kExitUnhealthy = 8;          // answered, and something is wrong

// Of absl's codes, which are gRPC's.
int ExitCodeOf(absl::StatusCode code);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_EXIT_CODE_H_
