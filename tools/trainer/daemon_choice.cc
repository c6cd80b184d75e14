#include "tools/trainer/daemon_choice.h"

#include <sys/stat.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

// As Session::Connect has it.
constexpr char kSocketVariable[] = "GEMINID_SOCKET";
constexpr char kInstalledSocket[] = "/run/geminid/geminid.sock";

}  // namespace

absl::StatusOr<DaemonChoice> ChooseDaemon(const TrainOptions& options) {
  DaemonChoice choice;
  const char* const environment = std::getenv(kSocketVariable);
  const bool named = environment != nullptr && *environment != '\0';
  if (!options.socket.empty()) {
    choice.socket = options.socket;
    return choice;
  }
  if (named && options.host_memory_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("--host-memory is for a daemon that this run starts, but ", kSocketVariable,
                     " names the daemon at ", environment, "; unset one of the two"));
  }
  struct stat file = {};
  if (named) {
    choice.socket = environment;
    return choice;
  }
  if (!options.host_memory_bytes && stat(kInstalledSocket, &file) == 0) {
    choice.socket = kInstalledSocket;
    return choice;
  }
  PrivateDaemonOptions daemon;
  if (options.host_memory_bytes) {
    daemon.arguments = {"--host-memory", absl::StrCat(*options.host_memory_bytes)};
  }
  GEMINID_ASSIGN_OR_RETURN(choice.own, PrivateDaemon::Start(daemon));
  choice.socket = choice.own->socket();
  return choice;
}

}  // namespace geminid::trainer
