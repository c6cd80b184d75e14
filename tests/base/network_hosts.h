// Hosts made of this one: each has a network, addresses and shared memory of its own.
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

// On a switch, numbered from 0. Gone, with all that runs there, with the object.
class NetworkHosts {
 public:
  // The status says which step the system refused.
  static absl::StatusOr<std::unique_ptr<NetworkHosts>> Make(int count);
  ~NetworkHosts();

  // Where they cannot be made, a test is skipped for everybody but root, who can make them
  // everywhere but in a container: there GEMINID_TESTS_WITHOUT_NAMESPACES=1 says that they are
  // skipped knowingly.
  static bool MayBeSkipped();

  static std::string NameOf(int host);  // its address
  int count() const { return static_cast<int>(hosts_.size()); }
  // Called with a host and a line for its shell.
  const std::string& remote_shell() const { return shell_; }
  // Processes of that one, but for the one that keeps it.
  std::vector<pid_t> ProcessesOf(int host) const;

  // Moves the calling process there, which must have one thread: a child of the test's.
  absl::Status Enter(int host) const;

  // Pulls the host's wire out: what is sent is lost, without a word to anybody. And in again.
  absl::Status Cut(int host) const;
  absl::Status Heal(int host) const;
  // What the host sends and receives, in words of tc, as "100mbit".
  absl::Status Slow(int host, const std::string& rate) const;
  // Takes the wire between the hosts before `first` and the others away.
  absl::Status Part(int first) const;

 private:
  struct Kept {
    pid_t pid = -1;
    UniqueFd input{};  // of the keeper: it ends with us, however we do
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
