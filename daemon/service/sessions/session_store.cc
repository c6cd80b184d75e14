#include "daemon/service/sessions/session_store.h"

#include <fcntl.h>

#include <set>

#include "base/unique_fd.h"
#include "daemon/os/log.h"
#include "daemon/service/heritage/keepsakes.h"

namespace geminid::service {

holder::DescriptorStore* StoreOrNone(holder::DescriptorStore* store) {
  static holder::NoStore* const none = new holder::NoStore;
  return store == nullptr ? none : store;
}

NamedDescriptors SlabsToStore(const ClientSession& session, const memory::DeviceArena& arena) {
  NamedDescriptors named;
  if (session.device().kind != shm::DeviceKind::kHost) return named;
  const std::vector<memory::DeviceArena::Slab> slabs = arena.slabs();
  for (uint32_t i = 0; i < slabs.size(); ++i) {
    named.emplace_back(SlabName(session.id(), i), slabs[i].fd->get());
  }
  return named;
}

void SessionStore::Put(const std::string& name, int fd) {
  const absl::Status status = store_->Put(name, fd);
  if (status.ok() || failure_logged_.exchange(true)) return;
  os::Log(os::LogLevel::kError,
          "a descriptor could not be stored for the next daemon: sessions end with this one",
          {{"why", std::string(status.message())}});
}

void SessionStore::PutSession(const ClientSession& session) {
  for (const auto& [name, fd] : session.Keepsakes()) Put(name, fd);
}

NamedDescriptors SessionStore::AllOf(const SessionTable::Locked& locked, shm::SessionId id) {
  NamedDescriptors named;
  const ClientSession* session = locked.Find(id);
  if (session == nullptr) return named;
  for (const auto& [pool_id, pool] : session->pools) {
    named.emplace_back(PoolName(id, pool_id), pool.fd().get());
  }
  const auto add = [&named](const NamedDescriptors& more) {
    named.insert(named.end(), more.begin(), more.end());
  };
  if (session->arena != nullptr) add(SlabsToStore(*session, *session->arena));
  add(session->Keepsakes());
  return named;
}

void SessionStore::PutWholeSession(shm::SessionId id) {
  std::vector<holder::KeptDescriptor> put;
  {
    const SessionTable::Locked locked = table_->Lock();
    // Duplicates: memory that is freed meanwhile closes the originals.
    for (const auto& [name, fd] : AllOf(locked, id)) {
      put.push_back({name, base::UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0))});
    }
  }
  for (const holder::KeptDescriptor& descriptor : put) Put(descriptor.name, descriptor.fd.get());
  std::set<std::string> still;
  {
    const SessionTable::Locked locked = table_->Lock();
    for (const auto& [name, fd] : AllOf(locked, id)) still.insert(name);
  }
  for (const holder::KeptDescriptor& descriptor : put) {
    if (!still.contains(descriptor.name)) Remove(descriptor.name);
  }
}

void SessionStore::Refill(const NamedDescriptors& node) {
  refills_.fetch_add(1);
  failure_logged_.store(false);
  for (const auto& [name, fd] : node) Put(name, fd);
  std::vector<shm::SessionId> ids;
  {
    const SessionTable::Locked locked = table_->Lock();
    for (const auto& [id, session] : locked.sessions()) ids.push_back(id);
  }
  for (const shm::SessionId id : ids) PutWholeSession(id);
}

}  // namespace geminid::service
