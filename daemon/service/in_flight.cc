#include "daemon/service/in_flight.h"

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

size_t InFlight::ShareOfATenant() const {
  const uint32_t configured = limits_->Get(config::kDescriptors);
  if (configured > 0) return configured;
  return std::max(kLeastShare, static_cast<size_t>(os::MaxDescriptors()) / 8);
}

size_t InFlight::CountLocked(const std::string& tenant) {
  const auto found = sent_.find(tenant);
  if (found == sent_.end()) return 0;
  std::erase_if(found->second, [](const Sent& sent) { return !HasUnread(*sent.socket); });
  size_t count = 0;
  for (const Sent& sent : found->second) count += sent.descriptors;
  if (count == 0) sent_.erase(found);
  return count;
}

size_t InFlight::Count(const std::string& tenant) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return CountLocked(tenant);
}

absl::Status InFlight::Send(const std::string& tenant, const Socket& socket,
                            std::span<const std::byte> message, std::span<const int> descriptors) {
  // Until it is sent, or another count would take it for one that was read.
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t unread = CountLocked(tenant);
  if (unread + descriptors.size() > ShareOfATenant()) {
    return limits_->Refuse(
        config::kDescriptors, tenant,
        absl::StrCat("has ", unread, " descriptors to take from its attach sockets, and may have ",
                     ShareOfATenant()),
        "read them, close the sockets of clients that do not, raise the daemon's limit of open "
        "files (LimitNOFILE=)");
  }
  absl::Status status = os::SendMessage(*socket, message, descriptors);
  if (!status.ok()) return status;
  std::vector<Sent>& sent = sent_[tenant];
  const auto same = std::find_if(sent.begin(), sent.end(),
                                 [&](const Sent& entry) { return entry.socket == socket; });
  if (same == sent.end()) {
    sent.push_back({socket, descriptors.size()});
  } else {
    same->descriptors += descriptors.size();
  }
  return absl::OkStatus();
}

}  // namespace geminid::service
