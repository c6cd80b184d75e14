// Ends a rank whose GPU no longer answers. A call of the driver that does not return blocks its
// thread, and every destructor that waits for this thread.
#ifndef GEMINID_TRAINING_RANKS_DRIVER_WATCH_H_
#define GEMINID_TRAINING_RANKS_DRIVER_WATCH_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/deadline.h"

namespace geminid::trainer {

// A device may do nothing for this many times --timeout.
inline constexpr int kStandstill = 5;

class DriverWatch {
 public:
  // If a call of the driver lasts longer than `limit`, it prints that to standard error and ends
  // the process at once, with the exit code of DEADLINE_EXCEEDED.
  DriverWatch(absl::Duration limit, std::function<void(const std::string&)> write_stderr);
  DriverWatch(const DriverWatch&) = delete;
  DriverWatch& operator=(const DriverWatch&) = delete;
  ~DriverWatch();

  // The rank ends because of `why`, and must release its device within `limit`; within less if the
  // driver hangs. After that time this prints `why`, and whether the driver hangs, and ends the
  // process with the exit code of `why`.
  void Ends(const absl::Status& why);

 private:
  void Loop();
  [[noreturn]] void EndProcess(const absl::Status& why) const;

  const absl::Duration limit_;
  const std::function<void(const std::string&)> write_stderr_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  bool stopping_ = false;
  absl::Status why_;
  std::optional<base::Deadline> farewell_;
  std::thread thread_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RANKS_DRIVER_WATCH_H_
