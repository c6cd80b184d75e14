// What geminid-train tells the shell.
#ifndef GEMINID_TOOLS_TRAINER_EXIT_CODE_H_
#define GEMINID_TOOLS_TRAINER_EXIT_CODE_H_

#include "absl/status/status.h"

namespace geminid::trainer {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;             // anything not named below
inline constexpr int kExitUsage = 2;              // wrong options, or files that cannot be used
inline constexpr int kExitUnavailable = 3;        // no daemon, or another rank is gone
inline constexpr int kExitTimeout = 4;            // another rank or the daemon did not answer
inline constexpr int kExitVersion = 5;            // the daemon or a peer does not fit
inline constexpr int kExitPermission = 6;         // not allowed
inline constexpr int kExitResourceExhausted = 7;  // it does not fit
inline constexpr int kExitAborted = 8;            // stopped because another rank failed
inline constexpr int kExitSignalBase = 128;       // plus the signal that ended it

int ExitCodeOf(absl::StatusCode code);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_EXIT_CODE_H_
