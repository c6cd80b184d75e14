// Adopts the sessions that an earlier daemon left in the descriptor store.
//
// Everything is put into the store when it is made, and removed after it was destroyed. So the
// store has all that sessions have, and perhaps memory that was being made or destroyed. Restorer
// takes such memory back: no client was told of it yet, or its client has freed it.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_RESTORER_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_RESTORER_H_

#include <map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/service/heritage/keepsakes.h"
#include "daemon/service/heritage/shortage.h"
#include "daemon/service/sessions/reaper.h"
#include "daemon/service/sessions/session_plans.h"
#include "daemon/service/sessions/session_table.h"
#include "daemon/service/sessions/waker.h"
#include "daemon/service/tenants/in_flight.h"

namespace geminid::service {

// What an earlier daemon left is damaged: every other daemon would find the same.
bool IsDamage(const absl::Status& status);

// For one take-over, before anything else uses the table.
class Restorer {
 public:
  // All outlive it.
  Restorer(SessionTable* table, SessionPlans* plans, Waker* waker, InFlight* in_flight,
           holder::DescriptorStore* store)
      : table_(table), plans_(plans), waker_(waker), in_flight_(in_flight), store_(store) {}

  // A session that is damaged is given up, with an error in the log. On any other error those that
  // are left in `kept` stay as they are, for the next daemon.
  absl::Status AdoptAll(std::map<shm::SessionId, Keepsakes::OfSession>* kept, Shortage* shortage);
  // After AdoptAll; see core::Engine::FinishRestore. DATA_LOSS when the accounts do not add up: all
  // memory was taken back then.
  absl::Status Finish(std::vector<core::Outgoing>* out);

  size_t lost() const { return lost_; }
  // What belongs to nobody, for the caller to destroy.
  Garbage TakeGarbage() { return std::exchange(garbage_, {}); }

 private:
  using Locked = SessionTable::Locked;
  struct Memory;

  absl::StatusOr<core::SessionFacts> Check(shm::SessionId id, const Keepsakes::OfSession& kept);
  absl::Status Adopt(shm::SessionId id, Keepsakes::OfSession* kept);
  void GiveMemory(const Locked& locked, ClientSession* session, Memory memory);
  void RevokeAll();

  SessionTable* const table_;
  SessionPlans* const plans_;
  Waker* const waker_;
  InFlight* const in_flight_;
  holder::DescriptorStore* const store_;
  Garbage garbage_;
  size_t lost_ = 0;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_RESTORER_H_
