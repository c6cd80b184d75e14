#include "daemon/service/sessions/reclaimer.h"

#include <fcntl.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "daemon/os/log.h"
#include "daemon/service/heritage/inherited_descriptors.h"

namespace geminid::service {
namespace {

// A slice takes about twenty microseconds.
constexpr size_t kChunksInASlice = 16;

}  // namespace

void Reclaimer::Collect(const SessionTable::Locked& locked, const core::Releases& releases,
                        bool died, Garbage* garbage) {
  for (const auto& [id, pool] : releases.pools) {
    ClientSession* session = locked.Find(id);
    if (session == nullptr) continue;
    auto node = session->pools.extract(pool);
    if (!node.empty()) garbage->pools.push_back(std::move(node.mapped()));
    garbage->descriptor_names.push_back(PoolName(id, pool));
  }
  for (const shm::SessionId id : releases.arenas) {
    ClientSession* session = locked.Find(id);
    if (session == nullptr || session->arena == nullptr) continue;
    Garbage::Arena arena = {.memory = std::move(session->arena), .holder = {}};
    const base::UniqueFd& pidfd = session->pidfd();
    // If no descriptor is left, the memory is taken back without waiting for the process.
    if (died && pidfd.valid()) {
      arena.holder = base::UniqueFd(::fcntl(pidfd.get(), F_DUPFD_CLOEXEC, 0));
    }
    for (uint32_t i = 0; i < arena.memory->slabs().size(); ++i) {
      garbage->descriptor_names.push_back(SlabName(id, i));
    }
    garbage->arenas.push_back(std::move(arena));
  }
  for (const shm::SessionId id : releases.sessions) {
    const auto found = locked.sessions().find(id);
    if (found == locked.sessions().end()) continue;
    statistics_->End(locked, id);
    plans_->Forget(locked, found->second.get());
    garbage->ended.push_back(found->second);
    for (const auto& [name, fd] : found->second->DescriptorsToStore())
      garbage->descriptor_names.push_back(name);
    locked.sessions().erase(found);
  }
  garbage->charges.insert(garbage->charges.end(), releases.charges.begin(), releases.charges.end());
  for (const shm::SessionId id : releases.closing) garbage->closing.push_back({id, died});
}

void Reclaimer::FinishClosing(Garbage* garbage) {
  for (const Garbage::Closing& closing : std::exchange(garbage->closing, {})) {
    table_->InSlices([&](const SessionTable::Locked& locked) {
      core::Releases releases;
      const bool done = locked.engine().ContinueClose(closing.session, kChunksInASlice, &releases);
      Collect(locked, releases, closing.died, garbage);
      return done;
    });
  }
}

// Ends the charges once all of the memory is back, in whichever order the parts come.
class Reclaimer::Return {
 public:
  Return(SessionTable* table, std::vector<core::ChargeId> charges)
      : table_(table), charges_(std::move(charges)) {}

  void Await() { ++left_; }
  void Came(const absl::Status& status) {
    if (!status.ok()) {
      // Clients may hold the memory for as long as they like, so it stays charged.
      os::Log(os::LogLevel::kError, "memory could not be taken back",
              {{"error", std::string(status.message())}});
      whole_.store(false);
    }
    if (left_.fetch_sub(1) != 1 || !whole_.load()) return;
    const SessionTable::Locked locked = table_->Lock();
    for (const core::ChargeId charge : charges_) locked.engine().GiveBack(charge);
  }

 private:
  SessionTable* const table_;
  const std::vector<core::ChargeId> charges_;
  std::atomic<int> left_{0};
  std::atomic<bool> whole_{true};
};

void Reclaimer::Destroy(Garbage garbage) {
  FinishClosing(&garbage);
  for (const SessionPtr& session : garbage.ended) session->segments().Discard();
  const auto back = std::make_shared<Return>(table_, std::move(garbage.charges));
  back->Await();
  absl::Status revoked;
  for (const memory::HostPool& pool : garbage.pools) revoked.Update(pool.Revoke());
  for (Garbage::Arena& arena : garbage.arenas) {
    back->Await();
    arena.memory->Revoke(std::move(arena.holder),
                         [back](const absl::Status& status) { back->Came(status); });
  }
  if (revoked.ok()) {
    for (const std::string& name : garbage.descriptor_names) store_->Remove(name);
    garbage.pools.clear();
    garbage.arenas.clear();
    garbage.sessions.clear();
  }
  back->Came(revoked);
}

}  // namespace geminid::service
