// The store of a daemon that systemd started: its file descriptor store, sd_pid_notify_with_fds(3).
//
// The unit needs FileDescriptorStoreMax= and NotifyAccess=main. The daemon's descriptors come back
// as $LISTEN_FDS and $LISTEN_FDNAMES when the unit is started again. On `systemctl stop` systemd
// closes them, and so ends the sessions.
#ifndef GEMINID_DAEMON_HOLDER_SYSTEMD_STORE_H_
#define GEMINID_DAEMON_HOLDER_SYSTEMD_STORE_H_

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/holder/descriptor_store.h"

namespace geminid::holder {

// The descriptors that systemd handed to this process ($LISTEN_FDS): those of its store, and its
// sockets. Call it once, before other threads exist: it changes the environment.
std::vector<StoredDescriptor> TakeHandedOver();

// Takes the descriptor of that name out of `*from`; invalid: there is none.
base::UniqueFd TakeNamed(const std::string& name, std::vector<StoredDescriptor>* from);

// FAILED_PRECONDITION, with all names: there is a listener, which nobody took out by its name.
absl::Status CheckNoListener(const std::vector<StoredDescriptor>& handed_over);

// The names of geminid.socket's listeners (FileDescriptorName=).
inline constexpr char kControlListener[] = "control-listener";
inline constexpr char kAttachListener[] = "attach-listener";

class SystemdStore final : public DescriptorStore {
 public:
  // `handed_over`: what TakeHandedOver returned, without listeners; those without a name are not
  // the store's. Null: systemd has no store for this process ($FDSTORE, of systemd 254), or it is
  // not the service's own ($SYSTEMD_EXEC_PID).
  static std::unique_ptr<SystemdStore> Open(std::vector<StoredDescriptor> handed_over);

  absl::Status Put(const std::string& name, int fd) override;
  absl::Status Remove(const std::string& name) override;
  absl::StatusOr<std::vector<StoredDescriptor>> List() override;
  // Does nothing: systemd decides, and may be starting the daemon again.
  void Finish() override {}
  bool OutlivesStop() const override { return true; }

 private:
  SystemdStore() = default;
  absl::Status Notify(const std::string& state, int fd);

  std::mutex mutex_;
  std::vector<StoredDescriptor> received_;  // guarded by mutex_
};

}  // namespace geminid::holder

#endif  // GEMINID_DAEMON_HOLDER_SYSTEMD_STORE_H_
