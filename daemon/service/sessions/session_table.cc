#include "daemon/service/sessions/session_table.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace geminid::service {

void SharedTables::PublishState(shm::SessionId session, shm::ChunkId chunk, uint64_t word) {
  const auto found = sessions.find(session);
  if (found == sessions.end() || shm::Index(chunk) >= shm::kMaxChunks) return;
  found->second->segments().state()->state[shm::Index(chunk)].store(word,
                                                                    std::memory_order_seq_cst);
}

uint64_t SharedTables::ReadLease(shm::SessionId session, shm::ChunkId chunk) {
  const auto found = sessions.find(session);
  // A session that is not in the table holds no lease.
  if (found == sessions.end() || shm::Index(chunk) >= shm::kMaxChunks) return 0;
  return found->second->segments().client()->lease[shm::Index(chunk)].load(
      std::memory_order_seq_cst);
}

uint64_t SharedTables::ReadCompletion(shm::SessionId session, uint16_t index) {
  const auto found = sessions.find(session);
  if (found == sessions.end() || index >= shm::kCompletionWords) return 0;
  return found->second->segments().client()->completion[index].load(std::memory_order_seq_cst);
}

void SharedTables::PublishYield(shm::SessionId session, bool asked) {
  const auto found = sessions.find(session);
  if (found == sessions.end()) return;
  found->second->segments().state()->header.yield.store(asked ? 1 : 0, std::memory_order_seq_cst);
}

absl::Status SessionTable::Locked::Check() const {
  GEMINID_RETURN_IF_ERROR(engine().Check());
  for (const auto& [id, session] : sessions()) {
    if (engine().IsAttached(id) != session->ended()) continue;
    return absl::InternalError(absl::StrCat("session ", shm::Value(id), " has ",
                                            session->ended() ? "no client" : "a client",
                                            ", and the engine says otherwise"));
  }
  return absl::OkStatus();
}

// A free mutex goes to the first thread that asks: mostly the one that has just released it.
void SessionTable::YieldToLoop() const {
  constexpr int kMostTurns = 1000;
  for (int turn = 0; turn < kMostTurns && loop_waits_.load() > 0; ++turn) std::this_thread::yield();
}

// Tries for a while first: a slice is shorter than falling asleep and being woken.
SessionTable::Locked SessionTable::LockForLoop() {
  constexpr int kTries = 200;
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) return Locked(this, std::move(lock));
  loop_waits_.fetch_add(1);
  for (int i = 0; i < kTries && !lock.owns_lock(); ++i) (void)lock.try_lock();
  if (!lock.owns_lock()) lock.lock();
  loop_waits_.fetch_sub(1);
  return Locked(this, std::move(lock));
}

}  // namespace geminid::service
