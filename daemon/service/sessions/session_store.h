// Puts the descriptors of all sessions into the descriptor store, where the next daemon finds them
// after this one has ended.
//
// The store (systemd, or geminid-holder) may be slow, so no function here waits for it under the
// mutex of the table. Names: daemon/service/heritage/inherited_descriptors.h.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_STORE_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_STORE_H_

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "daemon/holder/descriptor_store.h"
#include "daemon/memory/device_arena.h"
#include "daemon/service/sessions/client_session.h"
#include "daemon/service/sessions/session_table.h"

namespace geminid::service {

// Names in the store, each with a descriptor.
using NamedDescriptors = std::vector<std::pair<std::string, int>>;

// `store`; if it is null, a store that stores nothing.
holder::DescriptorStore* StoreOrNone(holder::DescriptorStore* store);

// The slabs that outlive the daemon. A GPU's memory belongs to its agent, which ends with the
// daemon: sessions on a GPU end, too.
NamedDescriptors SlabsToStore(const ClientSession& session, const memory::DeviceArena& arena);

// Thread-safe.
class SessionStore {
 public:
  // Both must outlive it; a null `store` stores nothing.
  SessionStore(holder::DescriptorStore* store, SessionTable* table)
      : store_(StoreOrNone(store)), table_(table) {}

  // A failure is logged, once: the session would then end with the daemon.
  void Put(const std::string& name, int fd);
  // Puts the descriptors of the session, except those of its memory.
  void PutSession(const ClientSession& session);
  // Puts all descriptors of a session in the table, including those of its memory.
  void PutWholeSession(shm::SessionId id);
  void Remove(const std::string& name) { store_->Remove(name).IgnoreError(); }

  // After the store has lost everything: puts `node` and all sessions of the table there again.
  void Refill(const NamedDescriptors& node);
  // How often Refill has begun. A caller that puts something which the table does not have yet
  // compares the number before and after, and puts it again if the number has changed.
  uint64_t refills() const { return refills_.load(); }

 private:
  static NamedDescriptors AllOf(const SessionTable::Locked& locked, shm::SessionId id);
  std::vector<std::string> NamesOf(shm::SessionId id);
  // Leaves out names that the session no longer has.
  std::vector<holder::StoredDescriptor> DuplicatesOf(shm::SessionId id,
                                                     std::span<const std::string> names);
  void Note(const absl::Status& status);

  holder::DescriptorStore* const store_;
  SessionTable* const table_;
  std::atomic<bool> failure_logged_{false};
  std::atomic<uint64_t> refills_{0};
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_SESSION_STORE_H_
