// What our programs tell the shell: one table, which docs/exit_codes.md shows to people.
//
// Needs nothing but the language, so that programs that stand alone use it too.
#ifndef GEMINID_BASE_EXIT_CODE_H_
#define GEMINID_BASE_EXIT_CODE_H_

namespace geminid::base {

// Of the tools. Exit codes are numbers to the system: main() returns them as they are.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,             // anything not named below
  kExitUsage = 2,              // wrong arguments, or a file whose content cannot be used
  kExitUnavailable = 3,        // no daemon, device or other rank where one is needed
  kExitNotFound = 4,           // no such session, chunk or file
  kExitPermission = 5,         // not allowed
  kExitDeadline = 6,           // the daemon or another rank did not answer in time
  kExitResourceExhausted = 7,  // it does not fit: memory, a limit, or a full disk
  kExitUnhealthy = 8,          // what was looked at answered, and something is wrong with it
  kExitAborted = 9,            // stopped because another rank failed, or on request
  kExitPrecondition = 10,      // the versions or states of two parts do not go together
  kExitDiverged = 11,          // the loss was not finite, and training was to stop then
  kExitSignalBase = 128,       // plus the number of the signal that ended it
};

// Of the daemon: those of sysexits.h, which service managers know and show by name.
enum DaemonExitCode : int {
  kDaemonExitOk = 0,
  kDaemonExitUsage = 64,        // EX_USAGE: the command line
  kDaemonExitUnavailable = 69,  // EX_UNAVAILABLE: another daemon has the socket or the port
  kDaemonExitInternal = 70,     // EX_SOFTWARE: anything not named here
  kDaemonExitResources = 71,    // EX_OSERR: the system gave no memory, threads or descriptors
  kDaemonExitPermission = 77,   // EX_NOPERM
  kDaemonExitConfig = 78,       // EX_CONFIG: a value of the configuration
};

}  // namespace geminid::base

#endif  // GEMINID_BASE_EXIT_CODE_H_
