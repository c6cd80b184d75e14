// Exit codes of all programs: one table, which docs/exit_codes.md shows to users.
//
// Uses only the language, so that standalone programs can include it.
#ifndef GEMINID_BASE_EXIT_CODE_H_
#define GEMINID_BASE_EXIT_CODE_H_

namespace geminid::base {

// For the tools. Exit codes are numbers to the system: main() returns them unchanged.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,             // anything not listed below
  kExitUsage = 2,              // wrong arguments, or a file with unusable content
  kExitUnavailable = 3,        // a required daemon, device or other rank is missing
  kExitNotFound = 4,           // no such session, chunk or file
  kExitPermission = 5,         // not allowed
  kExitDeadline = 6,           // the daemon or another rank did not answer in time
  kExitResourceExhausted = 7,  // memory, a limit or the disk is too small
  kExitUnhealthy = 8,          // the inspected object answered, and has a problem
  kExitAborted = 9,            // stopped because another rank failed, or on request
  kExitPrecondition = 10,      // versions or states of two parts do not match
  kExitDiverged = 11,          // the loss was not finite, and training was to stop then
  kExitSignalBase = 128,       // plus the number of the signal that ended the process
};

// For the daemon: the codes of sysexits.h, which service managers show by name.
enum DaemonExitCode : int {
  kDaemonExitOk = 0,
  kDaemonExitUsage = 64,        // EX_USAGE: the command line
  kDaemonExitUnavailable = 69,  // EX_UNAVAILABLE: another daemon has the socket or the port
  kDaemonExitInternal = 70,     // EX_SOFTWARE: anything not listed here
  kDaemonExitResources = 71,    // EX_OSERR: the system gave no memory, threads or descriptors
  kDaemonExitPermission = 77,   // EX_NOPERM
  kDaemonExitConfig = 78,       // EX_CONFIG: a value of the configuration
};

}  // namespace geminid::base

#endif  // GEMINID_BASE_EXIT_CODE_H_
