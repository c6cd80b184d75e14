// Takes memory back: out of the table, from the clients that still map it, and out of the accounts.
//
// Collect moves what the engine has released out of the table, under the mutex. Destroy closes
// sessions in slices, and then destroys memory without the mutex. Charges end last, once the kernel
// has the memory again.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_RECLAIMER_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_RECLAIMER_H_

#include <utility>

#include "absl/status/status.h"
#include "daemon/service/sessions/reaper.h"
#include "daemon/service/sessions/session_plans.h"
#include "daemon/service/sessions/session_statistics.h"
#include "daemon/service/sessions/session_store.h"
#include "daemon/service/sessions/session_table.h"

namespace geminid::service {

// Thread-safe.
class Reclaimer {
 public:
  // All arguments must outlive it.
  Reclaimer(SessionTable* table, SessionStore* store, SessionPlans* plans,
            SessionStatistics* statistics)
      : table_(table),
        store_(store),
        plans_(plans),
        statistics_(statistics),
        reaper_([this](Garbage garbage) { Destroy(std::move(garbage)); }) {}
  // Starts the thread of DestroyLater. RESOURCE_EXHAUSTED when the system gives none.
  absl::Status Start() { return reaper_.Start(); }

  // `died`: the client may use its memory until its process has ended.
  void Collect(const SessionTable::Locked& locked, const core::Releases& releases, bool died,
               Garbage* garbage);

  // Closes the rest of the sessions in garbage->closing, slice by slice, and adds their memory to
  // `*garbage`.
  void FinishClosing(Garbage* garbage);

  // Finishes closing, takes the memory back from whoever still holds it, and only then ends its
  // charges: about 50 ms/GiB, so the event loop leaves it to the reaper's thread. The memory of a
  // GPU comes back when its agent says so, after this has returned.
  void Destroy(Garbage garbage);
  void DestroyLater(Garbage garbage) { reaper_.Destroy(std::move(garbage)); }

 private:
  class Return;

  SessionTable* const table_;
  SessionStore* const store_;
  SessionPlans* const plans_;
  SessionStatistics* const statistics_;
  Reaper reaper_;  // last: its thread uses the others
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_RECLAIMER_H_
