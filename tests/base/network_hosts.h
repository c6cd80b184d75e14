// Hosts simulated on this one: each has its own network, addresses and shared memory.
#ifndef GEMINID_TESTS_BASE_NETWORK_HOSTS_H_
#define GEMINID_TESTS_BASE_NETWORK_HOSTS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "tests/base/temporary_folder.h"

namespace geminid::base {

// Hosts on a switch, numbered from 0. This object's end removes them and all their processes.
class NetworkHosts {
 public:
  // The status names the step that the system refused.
  static absl::StatusOr<std::unique_ptr<NetworkHosts>> Make(int count);
  ~NetworkHosts();

  // Whether a test may be skipped if the hosts cannot be made. Only root may not skip it, because
  // root can make them, except in a container: there GEMINID_TESTS_WITHOUT_NAMESPACES=1 says that
  // the tests are skipped knowingly.
  static bool MayBeSkipped();

  static std::string NameOf(int host);  // its address
  int count() const { return static_cast<int>(hosts_.size()); }
  // A command that takes a host and a line for that host's shell.
  const std::string& remote_shell() const { return shell_; }
  // The processes of that host, except the one that keeps it alive.
  std::vector<pid_t> ProcessesOf(int host) const;

  // Moves the calling process to the host; it must be a child of the test with one thread.
  absl::Status Enter(int host) const;

  // Cut disconnects the host's wire: sent packets are lost without an error. Heal reconnects it.
  absl::Status Cut(int host) const;
  absl::Status Heal(int host) const;
  // Limits the rate at which the host sends and receives, in words of tc, such as "100mbit".
  absl::Status Slow(int host, const std::string& rate) const;
  // Disconnects the hosts before `first` from the others.
  absl::Status Part(int first) const;

 private:
  struct Kept {
    pid_t pid = -1;
    UniqueFd input{};  // of the keeper process: it ends with us, however we end
  };

  NetworkHosts() = default;
  static absl::StatusOr<Kept> Keep();
  absl::Status Start(int count);
  absl::Status AddHost(int host);
  void WriteShell();
  std::vector<pid_t> ProcessesIn(const Kept& kept) const;
  static void End(const Kept& kept);

  const TemporaryFolder folder_;
  std::string shell_;
  Kept switch_;
  std::vector<Kept> hosts_;
};

}  // namespace geminid::base

#endif  // GEMINID_TESTS_BASE_NETWORK_HOSTS_H_
