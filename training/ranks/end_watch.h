// Notices that a person has ended the job, while the rank waits for another rank and cannot ask.
#ifndef GEMINID_TRAINING_RANKS_END_WATCH_H_
#define GEMINID_TRAINING_RANKS_END_WATCH_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "geminid/session.h"

namespace geminid::trainer {

// Asks again and again, on a thread of its own, whether the run is to end.
class EndWatch {
 public:
  struct Times {
    absl::Duration pause = absl::Milliseconds(100);  // between two questions
    absl::Duration grace = absl::ZeroDuration();     // for the rank to end by itself
    absl::Duration save = absl::ZeroDuration();      // beyond `grace`, while the rank awaits a save
  };
  // `ended` returns an error once the run is to end. If this object still lives after the grace
  // time, and the rank does not await a save, `end` gets that error, once. `end` and `awaits_save`
  // are called on the thread of this object, as `ended` is, and none after its destruction.
  EndWatch(std::function<absl::Status()> ended, std::function<bool()> awaits_save,
           std::function<void(const absl::Status&)> end, Times times);
  EndWatch(const EndWatch&) = delete;
  EndWatch& operator=(const EndWatch&) = delete;
  ~EndWatch();

 private:
  void Loop();

  const std::function<absl::Status()> ended_;
  const std::function<bool()> awaits_save_;
  const std::function<void(const absl::Status&)> end_;
  const Times times_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

// When a person ends the job of the session, and the rank has not ended two seconds later, because
// it waits for a rank that hangs: prints the reason and ends the process. While the rank awaits a
// save, whose files may be complete but for the disk, it gets `save` longer. The session outlives
// the result.
EndWatch ExitAtEnd(const Session& session, std::function<bool()> awaits_save, absl::Duration save,
                   std::function<void(const std::string&)> write_stderr);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RANKS_END_WATCH_H_
