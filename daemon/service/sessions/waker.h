// Wakes clients and ends their connections: system calls on sockets whose other ends are clients'.
// A client can make each call slow: 64 ms with a million epoll entries at its end.
//
// The caller, who holds no lock, sends a wake-up itself. Once a wake-up was slow, a thread sends
// all later ones of that tenant's clients, so that no other tenant waits for them. The thread takes
// the tenants in turn, and uses at most a tenth of a processor for each. At most one wake-up of
// each client waits.
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
class SleepingClient {
 public:
  enum class End { kNothing, kWrites, kAll };  // how much of its connection to end

  virtual ~SleepingClient() = default;
  virtual const std::string& tenant() const = 0;
  // The client can make it slow.
  virtual void Wake(End end) const = 0;
};
using SleepingClientPtr = std::shared_ptr<const SleepingClient>;

// Decides which tenants' wake-ups the thread sends, and which is next. Pure: it is handed time. Not
// thread-safe. Cost: linear in the tenants that it knows.
class WakeUpSchedule {
 public:
  // A wake-up that takes this long is slow, and its client is suspected.
  static constexpr core::Duration kLasting = core::Duration::Nanoseconds(250'000);
  // For how long the thread then sends the tenant's wake-ups. Doubles each time.
  static constexpr core::Duration kShortest = core::Duration::Seconds(1);
  static constexpr core::Duration kLongest = core::Duration::Seconds(600);

  bool IsLeftToThread(const std::string& tenant, core::Time now) const;
  // A wake-up was slow. The thread finds out with the next one whether the client causes that.
  void Suspect(const std::string& tenant) { tenants_[tenant].suspected = true; }

  // A waiting wake-up of the same client becomes one with it.
  void Add(const SleepingClientPtr& sleeper, SleepingClient::End end);
  struct WakeUp {
    SleepingClientPtr sleeper;  // null: none is due
    SleepingClient::End end = SleepingClient::End::kNothing;
  };
  WakeUp Next(core::Time now);
  // When Next has a turn; nullopt: no wake-up waits.
  std::optional<core::Time> NextAt() const;
  // Reports the processor time that a turn took.
  void Took(const std::string& tenant, core::Duration processor, core::Time now);
  // Drops waiting wake-ups of tenants whose wake-ups are slow.
  void DropLasting(core::Time now);
  // Forgets tenants whose wake-ups are not slow, and have not been for a while.
  void Forget(core::Time now);
  bool knows_nobody() const { return tenants_.empty(); }

 private:
  struct Tenant {
    std::map<SleepingClientPtr, SleepingClient::End> waiting;
    bool suspected = false;
    core::Duration penalty;
    core::Time until;    // until then the thread sends its wake-ups
    core::Time next_at;  // its next turn, at the earliest
  };

  std::map<std::string, Tenant> tenants_;
  std::string last_;  // who had the last turn
};

// Thread-safe.
class Waker {
 public:
  Waker() = default;
  // Sends the wake-ups that wait, except those of tenants whose wake-ups are slow.
  ~Waker();
  // RESOURCE_EXHAUSTED when the system gives no thread.
  absl::Status Start();

  // The caller must hold no lock that others wait for.
  void Wake(const SleepingClientPtr& sleeper);
  // Soon wakes the client and ends its connection as `end` says. Never waits.
  void End(const SleepingClientPtr& sleeper, SleepingClient::End end);

 private:
  void Run();
  // Sends one wake-up that is due. False: there is none.
  bool RunOne(std::unique_lock<std::mutex>* lock);

  std::mutex mutex_;
  std::condition_variable changed_;
  WakeUpSchedule turns_;                    // guarded by mutex_
  bool stopping_ = false;                   // guarded by mutex_
  std::atomic<bool> knows_anybody_{false};  // whether turns_ does
  std::thread thread_;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_SESSIONS_WAKER_H_
