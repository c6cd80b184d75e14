// Adopts the sessions that an earlier daemon left in the descriptor store.
//
// Memory enters the store when it is made, and leaves it after it was destroyed. So the store has
// all memory of the sessions, and perhaps some that was being made or destroyed. Restorer takes the
// latter back: its client does not know of it yet, or has freed it.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_RESTORER_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_RESTORER_H_

#include <map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/service/heritage/inherited_descriptors.h"
#include "daemon/service/heritage/shortage.h"
#include "daemon/service/sessions/reaper.h"
#include "daemon/service/sessions/session_plans.h"
#include "daemon/service/sessions/session_table.h"
#include "daemon/service/sessions/waker.h"
#include "daemon/service/tenants/descriptors_in_flight.h"

namespace geminid::service {

// The stored sessions are damaged: every other daemon would find the same.
bool IsDamage(const absl::Status& status);

// For one take-over, before anything else uses the table.
class Restorer {
 public:
  // All arguments must outlive it.
  Restorer(SessionTable* table, SessionPlans* plans, Waker* waker, DescriptorsInFlight* in_flight,
           holder::DescriptorStore* store)
      : table_(table), plans_(plans), waker_(waker), in_flight_(in_flight), store_(store) {}

  // Adopts the sessions in `kept`. A damaged one is given up, with an error in the log. On any
  // other error those still in `kept` stay as they are, for the next daemon.
  absl::Status AdoptAll(std::map<shm::SessionId, InheritedDescriptors::OfSession>* kept,
                        Shortage* shortage);
  // To be called after AdoptAll; see core::Engine::FinishRestore. DATA_LOSS: the accounts do not
  // add up, and all memory was taken back.
  absl::Status Finish(std::vector<core::Outgoing>* out);

  size_t lost() const { return lost_; }
  // Memory that belongs to no session, for the caller to destroy.
  Garbage TakeGarbage() { return std::exchange(garbage_, {}); }

 private:
  using Locked = SessionTable::Locked;
  struct Memory;

  absl::StatusOr<core::SessionFacts> Check(shm::SessionId id,
                                           const InheritedDescriptors::OfSession& kept);
  absl::Status Adopt(shm::SessionId id, InheritedDescriptors::OfSession* kept);
  void GiveMemory(const Locked& locked, ClientSession* session, Memory memory);
  void RevokeAll();

  SessionTable* const table_;
  SessionPlans* const plans_;
  Waker* const waker_;
  DescriptorsInFlight* const in_flight_;
  holder::DescriptorStore* const store_;
  Garbage garbage_;
  size_t lost_ = 0;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_RESTORER_H_
