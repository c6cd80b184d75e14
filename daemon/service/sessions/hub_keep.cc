// What of the hub is kept for a successor. Who keeps it may take its time, so none of this waits for
// it under the mutex.
#include <fcntl.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/os/log.h"
#include "daemon/service/sessions/hub.h"

namespace geminid::service {

void Hub::Keep(const std::string& name, int fd) {
  const absl::Status status = store_->Put(name, fd);
  if (status.ok() || keeping_failed_.exchange(true)) return;
  os::Log(os::LogLevel::kError,
          "nothing is kept for a successor: sessions would end with the daemon",
          {{"why", std::string(status.message())}});
}

void Hub::KeepSession(const ClientSession& session) {
  for (const auto& [name, fd] : session.Keepsakes()) Keep(name, fd);
}

Hub::Named Hub::SlabsToKeep(const ClientSession& session, const memory::DeviceArena& arena) {
  Named named;
  // A GPU's memory is its agent's, which ends with the daemon: sessions on it end, too.
  if (session.device().kind != shm::DeviceKind::kHost) return named;
  const std::vector<memory::DeviceArena::Slab> slabs = arena.slabs();
  for (uint32_t i = 0; i < slabs.size(); ++i) {
    named.emplace_back(SlabName(session.id(), i), slabs[i].fd->get());
  }
  return named;
}

Hub::Named Hub::AllToKeep(shm::SessionId id) const {
  Named named;
  const auto found = tables_.sessions.find(id);
  if (found == tables_.sessions.end()) return named;
  const ClientSession& session = *found->second;
  for (const auto& [pool_id, pool] : session.pools) {
    named.emplace_back(PoolName(id, pool_id), pool.fd().get());
  }
  const auto add = [&named](const Named& more) {
    named.insert(named.end(), more.begin(), more.end());
  };
  if (session.arena != nullptr) add(SlabsToKeep(session, *session.arena));
  add(session.Keepsakes());
  return named;
}

void Hub::KeepAgain(shm::SessionId id) {
  std::vector<holder::KeptDescriptor> kept;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    // Descriptors of our own: what is freed meanwhile is closed.
    for (const auto& [name, fd] : AllToKeep(id)) {
      kept.push_back({name, base::UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0))});
    }
  }
  for (const holder::KeptDescriptor& descriptor : kept) Keep(descriptor.name, descriptor.fd.get());
  std::set<std::string> still;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [name, fd] : AllToKeep(id)) still.insert(name);
  }
  for (const holder::KeptDescriptor& descriptor : kept) {
    if (!still.contains(descriptor.name)) store_->Remove(descriptor.name).IgnoreError();
  }
}

void Hub::KeepAll() {
  // What is being made now looks at this once it is made.
  times_kept_.fetch_add(1);
  keeping_failed_.store(false);
  Keep(kKeptNode, node_fd_.get());
  Keep(kKeptManifest, manifest_fd_.get());
  std::vector<shm::SessionId> ids;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [id, session] : tables_.sessions) ids.push_back(id);
  }
  for (const shm::SessionId id : ids) KeepAgain(id);
}

}  // namespace geminid::service
