#include "daemon/service/tenants/descriptors_in_flight.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/os/acceptor.h"
#include "daemon/os/unix_socket.h"

namespace geminid::service {
namespace {

// A welcome comes with five descriptors.
constexpr size_t kLeastShare = 8;

// All that was sent over a Unix socket is charged to it until it is read, or the reader is gone.
bool HasUnread(const base::UniqueFd& socket) {
  int bytes = 0;
  return ::ioctl(socket.get(), SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

}  // namespace

size_t DescriptorsInFlight::ShareOfATenant() const {
  const uint32_t configured = limits_->Get(config::kDescriptors);
  if (configured > 0) return configured;
  return std::max(kLeastShare, static_cast<size_t>(os::MaxDescriptors()) / 8);
}

// Also deletes the other tenants that have nothing counted, when a new one comes.
std::shared_ptr<DescriptorsInFlight::Tenant> DescriptorsInFlight::TenantOf(
    const std::string& name) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = tenants_.find(name);
  if (found != tenants_.end()) return found->second;
  std::erase_if(tenants_, [](const auto& tenant) {
    if (tenant.second.use_count() > 1) return false;
    const std::lock_guard<std::mutex> nobody_else(tenant.second->mutex);
    return tenant.second->sent.empty();
  });
  return tenants_.emplace(name, std::make_shared<Tenant>()).first->second;
}

size_t DescriptorsInFlight::CountLocked(Tenant* tenant) {
  std::erase_if(tenant->sent, [](const SentMessage& sent) { return !HasUnread(*sent.socket); });
  size_t count = 0;
  for (const SentMessage& sent : tenant->sent) count += sent.descriptors;
  return count;
}

size_t DescriptorsInFlight::Count(const std::string& name) {
  const std::shared_ptr<Tenant> tenant = TenantOf(name);
  const std::lock_guard<std::mutex> lock(tenant->mutex);
  return CountLocked(tenant.get());
}

absl::Status DescriptorsInFlight::Send(const std::string& name, const Socket& socket,
                                       std::span<const std::byte> message,
                                       std::span<const int> descriptors) {
  const std::shared_ptr<Tenant> tenant = TenantOf(name);
  // Held until the message is sent: else another count would find the socket empty.
  const std::lock_guard<std::mutex> lock(tenant->mutex);
  const size_t unread = CountLocked(tenant.get());
  if (unread + descriptors.size() > ShareOfATenant()) {
    return limits_->Refuse(
        config::kDescriptors, name,
        absl::StrCat("has ", unread, " descriptors to take from its attach sockets, and may have ",
                     ShareOfATenant()),
        "read them, close the sockets of clients that do not, raise the daemon's limit of open "
        "files (LimitNOFILE=)");
  }
  absl::Status status = os::SendMessage(*socket, message, descriptors);
  if (!status.ok()) return status;
  std::vector<SentMessage>& sent = tenant->sent;
  const auto same = std::find_if(sent.begin(), sent.end(),
                                 [&](const SentMessage& entry) { return entry.socket == socket; });
  if (same == sent.end()) {
    sent.push_back({socket, descriptors.size()});
  } else {
    same->descriptors += descriptors.size();
  }
  return absl::OkStatus();
}

}  // namespace geminid::service
