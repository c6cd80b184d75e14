#include "daemon/service/tenants/identity.h"

#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "daemon/os/event.h"
#include "daemon/os/subordinate_ids.h"

namespace geminid::service {
namespace {

constexpr int64_t kRememberNanoseconds = 1'000'000'000;
constexpr size_t kMostRemembered = 256;
constexpr auto kPidfsMagic = 0x50494446;  // linux/magic.h, of Linux 6.9

// The inode of a pidfd, which no other process ever has; 0: this kernel's pidfds share one inode.
ino_t NumberOf(const base::UniqueFd& pidfd) {
  struct statfs system = {};
  struct stat facts = {};
  const bool unique = ::fstatfs(pidfd.get(), &system) == 0 && system.f_type == kPidfsMagic &&
                      ::fstat(pidfd.get(), &facts) == 0;
  return unique ? facts.st_ino : 0;
}

// Looks up the places of processes. Each result is cached for a second, so that many connections of
// a process cost little more than one.
class Places {
 public:
  std::optional<os::ProcessPlace> Of(const os::Peer& peer) {
    const int64_t now = os::MonotonicNanoseconds();
    const ino_t number = NumberOf(peer.pidfd);
    const auto found = known_.find(number);
    if (found != known_.end() && found->second.until > now) return found->second.place;
    const std::optional<os::ProcessPlace> place = os::PlaceOf(peer.pid, peer.pidfd);
    if (!place.has_value() || number == 0) return place;
    if (known_.size() >= kMostRemembered) known_.clear();
    known_.insert_or_assign(number, Known{*place, now + kRememberNanoseconds});
    return place;
  }

 private:
  struct Known {
    os::ProcessPlace place;
    int64_t until = 0;
  };
  std::map<ino_t, Known> known_;
};

IdentifyPeer BySettings(config::TenantBy by) {
  return [by, places = std::make_shared<Places>(),
          ids = std::make_shared<os::SubordinateIds>()](const os::Peer& peer) {
    const bool look = config::NeedsProcess(by) && peer.pid != 0;
    return IdentityOf(peer, by, look ? places->Of(peer) : std::nullopt, ::geteuid(),
                      {ids->OwnerOfUser(peer.uid), ids->OwnerOfGroup(peer.gid)});
  };
}

std::string NameOf(const char* kind, uint64_t id, const std::optional<std::string>& owner) {
  return owner.has_value() ? absl::StrCat("sub", kind, *owner) : absl::StrCat(kind, id);
}

}  // namespace

Identity IdentityOf(const os::Peer& peer, config::TenantBy by,
                    const std::optional<os::ProcessPlace>& place, uid_t self,
                    const IdOwners& owners) {
  const bool is_operator = peer.uid == 0 || peer.uid == self;
  const std::string user = NameOf("uid:", peer.uid, is_operator ? std::nullopt : owners.of_user);
  if (by == config::TenantBy::kUid) return {user, is_operator};
  if (by == config::TenantBy::kUidGid) {
    return {absl::StrCat(user, ",", NameOf("gid:", peer.gid, owners.of_group)), is_operator};
  }
  // The process is not in the daemon's PID namespace, so only its user is known.
  if (peer.pid == 0) return {user, false};
  if (!place.has_value()) return {kUnresolvedTenant, false};
  if (by == config::TenantBy::kContainer && !place->in_container) return {user, is_operator};
  return {absl::StrCat("cgroup:", place->cgroup), is_operator && !place->in_container};
}

Clients::Clients(config::TenantBy by, IdentifyPeer identify)
    : needs_process_(config::NeedsProcess(by)),
      identify_(identify ? std::move(identify) : BySettings(by)) {}

absl::StatusOr<Client> Clients::OfSession(const base::UniqueFd& connection) const {
  GEMINID_ASSIGN_OR_RETURN(os::Peer peer, os::PeerOf(connection));
  Identity identity = identify_(peer);
  return Client{std::move(peer), std::move(identity)};
}

absl::StatusOr<Client> Clients::OfCall(const base::UniqueFd& connection) const {
  if (needs_process_) return OfSession(connection);
  GEMINID_ASSIGN_OR_RETURN(os::Peer peer, os::CredentialsOf(connection));
  Identity identity = identify_(peer);
  return Client{std::move(peer), std::move(identity)};
}

}  // namespace geminid::service
