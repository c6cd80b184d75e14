// Hosts made of this one: each has a network, addresses and shared memory of its own.
#ifndef GEMINID_TESTS_TOOLS_TRAINER_NETWORK_HOSTS_H_
#define GEMINID_TESTS_TOOLS_TRAINER_NETWORK_HOSTS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "tests/base/temporary_folder.h"

namespace geminid::trainer {

// Two of them, beside each other on a wire. Gone, with all that runs there, with the object.
class NetworkHosts {
 public:
  static constexpr char kNames[][12] = {"10.78.0.1", "10.78.0.2"};

  // Null where the system does not let us make any, or has no program for it.
  static std::unique_ptr<NetworkHosts> Make();
  ~NetworkHosts();

  // Called with a host and a line for its shell.
  const std::string& remote_shell() const { return shell_; }
  // Processes of that one, but for the one that keeps it.
  std::vector<pid_t> ProcessesOf(int host) const;

 private:
  NetworkHosts() = default;
  bool Start();

  const base::TemporaryFolder folder_;
  std::string shell_;
  pid_t keepers_[2] = {-1, -1};
  base::UniqueFd inputs_[2];  // of the keepers: they end with us, however we do
};

}  // namespace geminid::trainer

#endif  // GEMINID_TESTS_TOOLS_TRAINER_NETWORK_HOSTS_H_
