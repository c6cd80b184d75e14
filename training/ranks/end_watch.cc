#include "training/ranks/end_watch.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/exit_status.h"
#include "base/start_thread.h"
#include "client/src/session_internal.h"

namespace geminid::trainer {
namespace {

constexpr absl::Duration kExitGrace = absl::Seconds(2);

}  // namespace

EndWatch::EndWatch(std::function<absl::Status()> ended, std::function<bool()> awaits_save,
                   std::function<void(const absl::Status&)> end, Times times)
    : ended_(std::move(ended)),
      awaits_save_(std::move(awaits_save)),
      end_(std::move(end)),
      times_(times) {
  // Without the thread the end comes after the ranks' timeout.
  if (auto thread = base::StartThread([this] { Loop(); }); thread.ok()) {
    thread_ = *std::move(thread);
  }
}

EndWatch::~EndWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void EndWatch::Loop() {
  std::unique_lock lock(mutex_);
  const auto stops_within = [&](absl::Duration time) {
    return stopped_.wait_for(lock, absl::ToChronoNanoseconds(time), [this] { return stopping_; });
  };
  absl::Status ended = ended_();
  while (ended.ok()) {
    if (stops_within(times_.pause)) return;
    ended = ended_();
  }
  if (stops_within(times_.grace)) return;
  const absl::Time latest = base::MonotonicNow() + times_.save;
  while (awaits_save_() && base::MonotonicNow() < latest) {
    if (stops_within(times_.pause)) return;
  }
  end_(ended);
}

EndWatch ExitAtEnd(const Session& session, std::function<bool()> awaits_save, absl::Duration save,
                   std::function<void(const std::string&)> write_stderr) {
  return EndWatch([&session] { return EndedOnRequest(session); }, std::move(awaits_save),
                  [write = std::move(write_stderr)](const absl::Status& why) {
                    write(absl::StrCat("geminid-train: ", std::string(why.message()), "\n"));
                    _exit(base::ExitCodeOf(why.code()));
                  },
                  {.grace = kExitGrace, .save = save});
}

}  // namespace geminid::trainer
