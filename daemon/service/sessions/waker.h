// Wakes clients and ends their connections: system calls on sockets whose other ends are clients'.
// A client can make each last as long as it likes: with a million epoll entries at its end, 64 ms.
//
// The caller, who holds no lock, sends a wake-up itself. Once a wake-up has lasted, a thread sends
// all further ones of that tenant's clients, so that nobody else waits for them. The thread takes
// the tenants in turn, and a tenth of a processor for a tenant at most. Of each client at most one
// wake-up waits.
#ifndef GEMINID_DAEMON_SERVICE_SESSIONS_WAKER_H_
#define GEMINID_DAEMON_SERVICE_SESSIONS_WAKER_H_

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "daemon/core/basics/time.h"

namespace geminid::service {

// A client that may sleep.
class Sleeper {
 public:
  enum class End { kNothing, kWrites, kAll };  // of its connection

  virtual ~Sleeper() = default;
  virtual const std::string& tenant() const = 0;
  // Takes as long as the client likes.
  virtual void Wake(End end) const = 0;
};
using SleeperPtr = std::shared_ptr<const Sleeper>;

// Whose wake-ups are left to the thread, and which is next. Pure: it is handed time. Not
// thread-safe. Cost: linear in the tenants that it knows.
class WakeTurns {
 public:
  // A wake-up that takes so long is one that its client makes last.
  static constexpr core::Duration kLasting = core::Duration::Nanoseconds(250'000);
  // How long after that the thread sends those of its tenant. Twice as long each time.
  static constexpr core::Duration kShortest = core::Duration::Seconds(1);
  static constexpr core::Duration kLongest = core::Duration::Seconds(600);

  bool IsLeftToThread(const std::string& tenant, core::Time now) const;
  // One lasted. The thread finds out whether that was the client's doing: the next one tells.
  void Suspect(const std::string& tenant) { tenants_[tenant].suspected = true; }

  // One that waits already is the same one.
  void Add(const SleeperPtr& sleeper, Sleeper::End end);
  struct Turn {
    SleeperPtr sleeper;  // null: none is due
    Sleeper::End end = Sleeper::End::kNothing;
  };
  Turn Next(core::Time now);
  // When Next has one; nothing: none waits.
  std::optional<core::Time> NextAt() const;
  // What a turn took of a processor.
  void Took(const std::string& tenant, core::Duration processor, core::Time now);
  // What waits of tenants whose wake-ups last.
  void DropLasting(core::Time now);
  // Of tenants whose wake-ups do not last and have not for a while.
  void Forget(core::Time now);
  bool knows_nobody() const { return tenants_.empty(); }

 private:
  struct Tenant {
    std::map<SleeperPtr, Sleeper::End> waiting;
    bool suspected = false;
    core::Duration penalty;
    core::Time until;    // the thread sends its wake-ups
    core::Time next_at;  // not before
  };

  std::map<std::string, Tenant> tenants_;
  std::string last_;  // who had the last turn
};

// Thread-safe.
class Waker {
 public:
  Waker() = default;
  // Does what waits, but for those who make it last.
  ~Waker();
  // RESOURCE_EXHAUSTED when the system gives no thread.
  absl::Status Start();

  // The caller holds no lock that others wait for.
  void Wake(const SleeperPtr& sleeper);
  // Wakes it, and ends so much of its connection, soon. Never waits.
  void End(const SleeperPtr& sleeper, Sleeper::End end);

 private:
  void Run();
  // Sends one that is due. False: there is none.
  bool RunOne(std::unique_lock<std::mutex>* lock);

  std::mutex mutex_;
  std::condition_variable changed_;
  WakeTurns turns_;                         // guarded by mutex_
  bool stopping_ = false;                   // guarded by mutex_
  std::atomic<bool> knows_anybody_{false};  // whether turns_ does
  std::thread thread_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_WAKER_H_
