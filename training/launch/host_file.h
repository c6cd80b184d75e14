// Reads the file of --hosts, in the form that mpirun and deepspeed read:
//
//   # comments, and empty lines
//   node-a slots=4
//   node-b slots=4
//   user@node-c       (one slot; the remote shell logs in as that user)
#ifndef GEMINID_TRAINING_LAUNCH_HOST_FILE_H_
#define GEMINID_TRAINING_LAUNCH_HOST_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace geminid::trainer {

inline constexpr int kRanksMax = 1024;  // of one run

struct HostSlots {
  std::string name;  // as in the file, for the remote shell: HOST or USER@HOST
  int ranks = 1;
  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

// INVALID_ARGUMENT names the line and says what would be right. The errors are: a line that is not
// a host and its slots, a host that appears twice, and no host at all. A loopback name beside other
// hosts is also an error, because these could not reach it. `path` is for the message.
absl::StatusOr<std::vector<HostSlots>> ParseHostFile(const std::string& path,
                                                     const std::string& text);
// Does the same for a file. Errors as of ReadFile if the file cannot be read.
absl::StatusOr<std::vector<HostSlots>> ReadHostFile(const std::string& path);

// The first `ranks` slots, host by host. INVALID_ARGUMENT if there are fewer.
absl::StatusOr<std::vector<HostSlots>> TakeSlots(const std::vector<HostSlots>& hosts, int ranks);

int SlotsOf(const std::vector<HostSlots>& hosts);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_HOST_FILE_H_
