#include "daemon/service/sessions/session_store.h"

#include <fcntl.h>

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "daemon/os/log.h"
#include "daemon/service/heritage/inherited_descriptors.h"

namespace geminid::service {
namespace {

constexpr size_t kDuplicatesAtOnce = 8;

}  // namespace

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

void SessionStore::Put(const std::string& name, int fd) { Note(store_->Put(name, fd)); }

void SessionStore::Note(const absl::Status& status) {
  if (status.ok() || failure_logged_.exchange(true)) return;
  os::Log(os::LogLevel::kError,
          "a descriptor could not be stored for the next daemon: sessions end with this one",
          {{"why", std::string(status.message())}});
}

void SessionStore::PutSession(const ClientSession& session) {
  for (const auto& [name, fd] : session.DescriptorsToStore()) Put(name, fd);
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
  add(session->DescriptorsToStore());
  return named;
}

// Duplicates, because memory that is freed meanwhile closes the originals.
std::vector<holder::StoredDescriptor> SessionStore::DuplicatesOf(
    shm::SessionId id, std::span<const std::string> names) {
  std::vector<holder::StoredDescriptor> duplicates;
  const SessionTable::Locked locked = table_->Lock();
  const NamedDescriptors all = AllOf(locked, id);
  const std::map<std::string, int> there(all.begin(), all.end());
  for (const std::string& name : names) {
    const auto found = there.find(name);
    if (found == there.end()) continue;
    base::UniqueFd fd(::fcntl(found->second, F_DUPFD_CLOEXEC, 0));
    if (!fd.valid()) {
      Note(absl::ErrnoToStatus(errno, absl::StrCat("F_DUPFD_CLOEXEC of ", name)));
      continue;
    }
    duplicates.push_back({name, std::move(fd)});
  }
  return duplicates;
}

std::vector<std::string> SessionStore::NamesOf(shm::SessionId id) {
  std::vector<std::string> names;
  const SessionTable::Locked locked = table_->Lock();
  for (const auto& [name, fd] : AllOf(locked, id)) names.push_back(name);
  return names;
}

// In small groups: the daemon may lack the descriptors to duplicate hundreds of pools at once.
void SessionStore::PutWholeSession(shm::SessionId id) {
  const std::vector<std::string> names = NamesOf(id);
  for (std::span<const std::string> left(names); !left.empty();) {
    const size_t count = std::min(left.size(), kDuplicatesAtOnce);
    for (const auto& duplicate : DuplicatesOf(id, left.first(count))) {
      Put(duplicate.name, duplicate.fd.get());
    }
    left = left.subspan(count);
  }
  const std::vector<std::string> after = NamesOf(id);
  const std::set<std::string> still(after.begin(), after.end());
  for (const std::string& name : names) {
    if (!still.contains(name)) Remove(name);
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
