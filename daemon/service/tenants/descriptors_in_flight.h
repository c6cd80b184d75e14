// Descriptors sent to clients who have not taken them yet.
//
// The kernel counts them all against the daemon's user, and refuses to send any more when there are
// as many as one process may have open. Without shares, one client that reads nothing would keep
// everybody from attaching.
#ifndef GEMINID_DAEMON_SERVICE_TENANTS_DESCRIPTORS_IN_FLIGHT_H_
#define GEMINID_DAEMON_SERVICE_TENANTS_DESCRIPTORS_IN_FLIGHT_H_

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/unique_fd.h"
#include "daemon/service/tenants/limits.h"

namespace geminid::service {

// Thread-safe.
class DescriptorsInFlight {
 public:
  using Socket = std::shared_ptr<const base::UniqueFd>;

  // `limits` outlives it.
  explicit DescriptorsInFlight(Limits* limits) : limits_(limits) {}

  // Sends a message with descriptors, as os::SendMessage does. RESOURCE_EXHAUSTED when the tenant's
  // clients have too many to take.
  absl::Status Send(const std::string& tenant, const Socket& socket,
                    std::span<const std::byte> message, std::span<const int> descriptors);
  // How many descriptors the tenant's clients have not taken yet. These stay counted after their
  // session has ended, because they are still in its socket.
  size_t Count(const std::string& tenant);

 private:
  struct SentMessage {
    Socket socket;
    size_t descriptors = 0;
  };
  // A client can make a send slow: only sends of its own tenant wait for it.
  struct Tenant {
    std::mutex mutex;
    std::vector<SentMessage> sent;  // guarded by `mutex`
  };

  std::shared_ptr<Tenant> TenantOf(const std::string& name);
  static size_t CountLocked(Tenant* tenant);
  size_t ShareOfATenant() const;

  Limits* const limits_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Tenant>> tenants_;  // guarded by mutex_
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_TENANTS_DESCRIPTORS_IN_FLIGHT_H_
