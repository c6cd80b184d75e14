// Destroys memory on a thread of its own: giving back tens of gigabytes takes seconds.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_REAPER_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_REAPER_H_

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/unique_fd.h"
#include "daemon/core/engine/engine.h"
#include "daemon/memory/device_arena.h"
#include "daemon/memory/host_pool.h"
#include "daemon/service/sessions/client_session.h"

namespace geminid::service {

// Memory, sessions and stored descriptors that nobody may use any more, and the charges that end
// once they are destroyed.
struct Garbage {
  // A session that is closed in part: the rest of it is to be closed in slices.
  struct Closing {
    shm::SessionId session{};
    bool died = false;  // see Reclaimer::Collect
  };
  struct Arena {
    std::unique_ptr<memory::DeviceArena> memory;
    base::UniqueFd holder;  // see DeviceArena::Revoke
  };
  std::vector<Closing> closing;
  std::vector<memory::HostPool> pools;
  std::vector<Arena> arenas;
  std::vector<SessionPtr> sessions;  // references to release; the session may live on
  std::vector<SessionPtr> ended;     // sessions that have ended for good
  std::vector<core::ChargeId> charges;
  std::vector<std::string> descriptor_names;  // names in the descriptor store
  bool empty() const {
    return closing.empty() && descriptor_names.empty() && pools.empty() && arenas.empty() &&
           sessions.empty() && ended.empty() && charges.empty();
  }
};

// Thread-safe.
class Reaper {
 public:
  explicit Reaper(std::function<void(Garbage)> destroy) : destroy_(std::move(destroy)) {}
  ~Reaper();  // destroys what is left
  // RESOURCE_EXHAUSTED when the system gives no thread.
  absl::Status Start();
  void Destroy(Garbage garbage);

 private:
  void Run();

  const std::function<void(Garbage)> destroy_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Garbage> garbage_;  // guarded by mutex_
  bool stopping_ = false;         // guarded by mutex_
  std::thread thread_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_REAPER_H_
