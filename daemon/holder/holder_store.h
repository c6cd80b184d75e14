// The store of a daemon without a service manager: a process of its own, geminid-holder.
#ifndef GEMINID_DAEMON_HOLDER_HOLDER_STORE_H_
#define GEMINID_DAEMON_HOLDER_HOLDER_STORE_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/holder/descriptor_store.h"
#include "daemon/holder/protocol.h"

namespace geminid::holder {

struct HolderOptions {
  std::string binary;       // geminid-holder
  std::string socket;       // where it listens for daemons; the caller has the lock of it
  absl::Duration patience;  // how long it waits for the next daemon
  pid_t until = 0;          // without a daemon, it ends with this process; 0: with none
  // Waiting for the holder ends early once `is_to_end` says so, which is asked whenever this
  // descriptor is readable. Negative: nothing ends it early.
  int signals = -1;
  std::function<bool()> is_to_end{};
};

// The program of that name beside this one. NOT_FOUND when it is not there.
absl::StatusOr<std::string> FindHolder();

class HolderStore final : public DescriptorStore {
 public:
  // Connects to the holder that an earlier daemon started, or starts one if none listens.
  // PERMISSION_DENIED: the listener is neither this user's nor root's, and was told nothing. Open
  // and List() wait half a minute for the holder. They return FAILED_PRECONDITION, and the holder
  // stays, if that does not answer or speaks another version; and CANCELLED if `is_to_end` says so.
  static absl::StatusOr<std::unique_ptr<HolderStore>> Open(HolderOptions options);

  absl::Status Put(const std::string& name, int fd) override;
  absl::Status Remove(const std::string& name) override;
  absl::StatusOr<std::vector<StoredDescriptor>> List() override;
  void Finish() override;
  int watch_fd() const override { return socket_.get(); }
  // After the holder's end. watch_fd() is another descriptor then.
  absl::Status Renew() override;

 private:
  explicit HolderStore(HolderOptions options) : options_(std::move(options)) {}
  absl::Status StartHolder();
  absl::Status SendLocked(const Message& message, int fd);
  absl::Status SendError(int error);
  absl::Status ReplaceEnded();
  // Waits until the holder has sent something, or hung up.
  absl::Status AwaitAnswer();

  const HolderOptions options_;
  std::mutex mutex_;
  base::UniqueFd socket_;  // written under mutex_, by List and Renew alone once it is open
};

}  // namespace geminid::holder

#endif  // GEMINID_DAEMON_HOLDER_HOLDER_STORE_H_
