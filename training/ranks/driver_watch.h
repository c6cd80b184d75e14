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

// How many times --timeout a device may do nothing.
inline constexpr int kStandstill = 5;

class DriverWatch {
 public:
  // Says why on standard error and ends the process at once, with the code of DEADLINE_EXCEEDED,
  // when a call of the driver lasts longer than `limit`.
  DriverWatch(absl::Duration limit, std::function<void(const std::string&)> write_stderr);
  DriverWatch(const DriverWatch&) = delete;
  DriverWatch& operator=(const DriverWatch&) = delete;
  ~DriverWatch();

  // The rank ends because of `why`, and has as long to let go of its device; less, if its driver
  // hangs. Then this says why, and that it hangs, and ends the process with the code of it.
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
