// The processes of a probe: forked, connected by a socket pair, always ended and reaped.
//
// CUDA does not survive fork(): a process that starts roles must not have initialised the driver.
// Everything here belongs to one thread.
#ifndef GEMINID_TOOLS_GPU_VERIFY_PROCESS_H_
#define GEMINID_TOOLS_GPU_VERIFY_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/unique_fd.h"

namespace geminid::gpu_verify {

// A question that could not be answered. It never leaves the process that runs the probe.
class ProbeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

double Now();                   // seconds of CLOCK_MONOTONIC, the same in all processes
void Pause(double seconds);     // sleeps
uint64_t AvailableHostBytes();  // MemAvailable of /proc/meminfo

// One end of a socket pair: texts of up to 4 KiB, each with at most one descriptor.
class Channel {
 public:
  struct Message {
    std::string text;
    base::UniqueFd fd;
  };

  explicit Channel(base::UniqueFd socket) : socket_(std::move(socket)) {}
  void Send(const std::string& text, int fd = -1) const;
  // Waits for a message. Throws ProbeError if the peer has ended or reported an error.
  Message Receive() const;
  int socket() const { return socket_.get(); }

 private:
  base::UniqueFd socket_;
};

// A forked process. It ends no later than the process that started it.
class Role {
 public:
  // Runs `body` in a new process. A ProbeError that it throws arrives at Receive().
  static Role Start(const std::string& name, const std::function<void(Channel&)>& body);
  Role(Role&& other) noexcept;
  Role& operator=(Role&& other) noexcept;
  ~Role() { End(); }

  const Channel& channel() const { return channel_; }
  pid_t pid() const { return pid_; }
  // SIGKILL; does not wait.
  void Kill() const;
  // Waits until the kernel announces the end (by the pidfd, if there is one). False if the process
  // did not end in time.
  bool WaitForEnd(double timeout_seconds) const;
  // Kills and reaps.
  void End();

 private:
  Role(pid_t pid, base::UniqueFd pidfd, Channel channel)
      : pid_(pid), pidfd_(std::move(pidfd)), channel_(std::move(channel)) {}

  pid_t pid_ = -1;
  base::UniqueFd pidfd_;
  Channel channel_;
};

// Kills a process that need not be a child of this one and waits for its end. False if it did not
// end in time.
bool KillOrphan(pid_t pid, double timeout_seconds);

}  // namespace geminid::gpu_verify

#endif  // GEMINID_TOOLS_GPU_VERIFY_PROCESS_H_
