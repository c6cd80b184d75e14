// A listener on the event loop that survives times without free descriptors.
#ifndef GEMINID_DAEMON_OS_ACCEPTOR_H_
#define GEMINID_DAEMON_OS_ACCEPTOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "daemon/os/event_loop.h"

namespace geminid::os {

// Belongs to the event loop's thread. A bounded number of connections is accepted per event, so
// that a flood of them does not keep the loop from its other work.
class Acceptor {
 public:
  using OnConnection = std::function<void(base::UniqueFd connection)>;

  // `listener` is non-blocking; `name` is what the log calls it. `loop` outlives the acceptor.
  static absl::StatusOr<std::unique_ptr<Acceptor>> Create(base::UniqueFd listener, std::string name,
                                                          EventLoop* loop,
                                                          OnConnection on_connection);
  ~Acceptor();

  // Accepts again, some time after the descriptors had run out.
  void Expire(int64_t now_nanoseconds);
  // When to call Expire next.
  std::optional<int64_t> NextDeadline() const;

 private:
  Acceptor(base::UniqueFd listener, std::string name, EventLoop* loop, OnConnection on_connection)
      : listener_(std::move(listener)),
        name_(std::move(name)),
        loop_(loop),
        on_connection_(std::move(on_connection)) {}
  absl::Status Watch();
  void AcceptSome();
  void Pause(const absl::Status& why);

  const base::UniqueFd listener_;
  const std::string name_;
  EventLoop* const loop_;
  const OnConnection on_connection_;
  EventLoop::WatchId watch_ = 0;
  int64_t again_at_ = 0;  // 0: accepting
  bool told_ = false;     // the pause is logged
};

// How many descriptors this process may have open at once.
int MaxDescriptors();
// Descriptors reserved for the operator's own connections and for what the daemon itself opens.
int ReservedDescriptors();
// The kernel hands out the lowest free number, so the number of a new descriptor says how many are
// in use at least. True: it came from the reserve, so its client must be refused.
bool IsFromReserve(const base::UniqueFd& newest);

}  // namespace geminid::os

#endif  // GEMINID_DAEMON_OS_ACCEPTOR_H_
