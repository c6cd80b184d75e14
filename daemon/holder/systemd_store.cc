#include "daemon/holder/systemd_store.h"

#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/system_error.h"
#include "daemon/holder/protocol.h"

namespace geminid::holder {
namespace {

constexpr char kStoreVariable[] = "FDSTORE";
constexpr char kNotifyVariable[] = "NOTIFY_SOCKET";
// The service's own process. Others inherit its variables, but systemd does not listen to them.
constexpr char kPidVariable[] = "SYSTEMD_EXEC_PID";

// False for the names that systemd gives to descriptors without one.
bool IsNamed(const std::string& name) {
  return IsName(name) && name != "stored" && name != "unknown";
}

}  // namespace

std::vector<StoredDescriptor> TakeHandedOver() {
  std::vector<StoredDescriptor> handed_over;
  char** names = nullptr;
  const int count = ::sd_listen_fds_with_names(/*unset_environment=*/1, &names);
  for (int i = 0; i < count; ++i) {
    handed_over.push_back({names[i], base::UniqueFd(SD_LISTEN_FDS_START + i)});
  }
  for (int i = 0; i < count; ++i) std::free(names[i]);
  std::free(static_cast<void*>(names));
  return handed_over;
}

base::UniqueFd TakeNamed(const std::string& name, std::vector<StoredDescriptor>* from) {
  const auto found = std::ranges::find(*from, name, &StoredDescriptor::name);
  if (found == from->end()) return base::UniqueFd();
  base::UniqueFd fd = std::move(found->fd);
  from->erase(found);
  return fd;
}

absl::Status CheckNoListener(const std::vector<StoredDescriptor>& handed_over) {
  const bool some = std::ranges::any_of(handed_over, [](const StoredDescriptor& each) {
    int listens = 0;
    socklen_t size = sizeof(listens);
    return ::getsockopt(each.fd.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 &&
           listens == 1;
  });
  if (!some) return absl::OkStatus();
  const std::string names =
      absl::StrJoin(handed_over, ", ", [](std::string* out, const StoredDescriptor& each) {
        absl::StrAppend(out, each.fd.get(), " '", each.name, "'");
      });
  return absl::FailedPreconditionError(absl::StrCat(
      "a listener was handed over ($LISTEN_FDS) under a name that is not known: ", names,
      "; give geminid.socket FileDescriptorName=", kControlListener,
      " and geminid-attach.socket FileDescriptorName=", kAttachListener));
}

std::unique_ptr<SystemdStore> SystemdStore::Open(std::vector<StoredDescriptor> handed_over) {
  const char* const room = std::getenv(kStoreVariable);
  const char* const pid = std::getenv(kPidVariable);
  uint64_t most = 0;
  if (room == nullptr || !absl::SimpleAtoi(room, &most) || most == 0 || pid == nullptr ||
      pid != absl::StrCat(::getpid()) || std::getenv(kNotifyVariable) == nullptr) {
    return nullptr;
  }
  std::unique_ptr<SystemdStore> store(new SystemdStore);
  std::erase_if(handed_over, [](const StoredDescriptor& each) { return !IsNamed(each.name); });
  store->received_ = std::move(handed_over);
  return store;
}

absl::Status SystemdStore::Notify(const std::string& state, int fd) {
  const unsigned count = fd >= 0 ? 1 : 0;
  const int sent = ::sd_pid_notify_with_fds(0, 0, state.c_str(), fd >= 0 ? &fd : nullptr, count);
  if (sent > 0) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("systemd accepts no descriptor: ",
                   sent == 0 ? "there is no $NOTIFY_SOCKET" : std::strerror(-sent)));
}

// FDPOLL=0: systemd keeps a connection whose other end is closed, so that the next daemon notices
// it. systemd stores several descriptors of one name, the older first.
absl::Status SystemdStore::Put(const std::string& name, int fd) {
  if (!IsNamed(name))
    return absl::InvalidArgumentError(absl::StrCat("'", name, "' is not a valid name"));
  return Notify(absl::StrCat("FDSTORE=1\nFDPOLL=0\nFDNAME=", name), fd);
}

absl::Status SystemdStore::Remove(const std::string& name) {
  if (!IsNamed(name))
    return absl::InvalidArgumentError(absl::StrCat("'", name, "' is not a valid name"));
  return Notify(absl::StrCat("FDSTOREREMOVE=1\nFDNAME=", name), -1);
}

absl::StatusOr<std::vector<StoredDescriptor>> SystemdStore::List() {
  const std::lock_guard lock(mutex_);
  return std::move(received_);
}

}  // namespace geminid::holder
