// A geminid-agent as a child of this process, and the socket between the two.
#ifndef GEMINID_DAEMON_GPUS_AGENT_PROCESS_H_
#define GEMINID_DAEMON_GPUS_AGENT_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "daemon/agent/messages.h"

namespace geminid::gpus {

// geminid-agent beside the program that runs here.
std::string AgentBesideThisProgram();

// Move-only. One thread at a time. Its destructor ends the process: it closes the socket, and kills
// an agent that does not end then.
class AgentProcess {
 public:
  // Starts the agent of the GPU with that UUID; if it is empty, a probe, which lists all GPUs and
  // ends. Apart from this process's standard streams, the agent inherits only its end of the
  // socket. NOT_FOUND: there is no such program.
  static absl::StatusOr<AgentProcess> Start(const std::string& program, const std::string& uuid);

  AgentProcess(AgentProcess&& other) noexcept = default;
  AgentProcess& operator=(AgentProcess&& other) noexcept = delete;
  ~AgentProcess();

  // Readable when the agent has said something, or closed its end.
  const base::UniqueFd& socket() const { return socket_; }
  // Readable when the process has ended.
  const base::UniqueFd& pidfd() const { return pidfd_; }
  pid_t pid() const { return pid_; }

  // Never waits. UNAVAILABLE: the agent does not read. FAILED_PRECONDITION: it has closed its end.
  absl::Status Send(const agent::Request& request) const;

  struct ReceivedReply {
    agent::Reply reply;
    base::UniqueFd fd;  // of a kCreated
  };
  // The next reply, checked; nullopt: there is none yet. An error: the agent broke the protocol, or
  // closed its end (UNAVAILABLE).
  absl::StatusOr<std::optional<ReceivedReply>> Receive() const;

  // Kills the process; it is gone when pidfd() says so.
  void Kill() const;
  // How it ended, such as "exit code 1" or "signal 9 (Killed)"; nullopt: it runs. Once this has
  // returned a text, the kernel has forgotten the process too.
  std::optional<std::string> HowItEnded();

 private:
  AgentProcess(pid_t pid, base::UniqueFd pidfd, base::UniqueFd socket)
      : pid_(pid), pidfd_(std::move(pidfd)), socket_(std::move(socket)) {}

  pid_t pid_;
  base::UniqueFd pidfd_;
  base::UniqueFd socket_;
  std::optional<std::string> end_;
};

}  // namespace geminid::gpus

#endif  // GEMINID_DAEMON_GPUS_AGENT_PROCESS_H_
