// The store of a daemon that systemd started: its file descriptor store, sd_pid_notify_with_fds(3).
//
// The unit needs FileDescriptorStoreMax= and NotifyAccess=main. What the daemon had comes back as
// $LISTEN_FDS and $LISTEN_FDNAMES when the unit is started again; on `systemctl stop` systemd
// closes it, and so ends the sessions.
#ifndef GEMINID_DAEMON_HOLDER_SYSTEMD_STORE_H_
#define GEMINID_DAEMON_HOLDER_SYSTEMD_STORE_H_

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/holder/descriptor_store.h"

namespace geminid::holder {

class SystemdStore final : public DescriptorStore {
 public:
  // Takes the descriptors that systemd handed to this process. Null: it has no store for it
  // ($FDSTORE, of systemd 254), or it is not the service's own ($SYSTEMD_EXEC_PID). Once, before
  // other threads exist: it changes the environment.
  static std::unique_ptr<SystemdStore> Open();

  absl::Status Put(const std::string& name, int fd) override;
  absl::Status Remove(const std::string& name) override;
  absl::StatusOr<std::vector<KeptDescriptor>> List() override;
  // systemd decides: it may be starting the daemon again.
  void Finish() override {}
  bool OutlivesStop() const override { return true; }

 private:
  SystemdStore() = default;
  absl::Status Notify(const std::string& state, int fd);

  std::mutex mutex_;
  std::vector<KeptDescriptor> received_;  // guarded by mutex_
};

}  // namespace geminid::holder

#endif  // GEMINID_DAEMON_HOLDER_SYSTEMD_STORE_H_
