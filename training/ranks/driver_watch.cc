#include "training/ranks/driver_watch.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_status.h"
#include "base/start_thread.h"
#include "gpu/driver_calls.h"

namespace geminid::trainer {
namespace {

// How often it looks, of the limit.
constexpr int kLooks = 20;

}  // namespace

DriverWatch::DriverWatch(absl::Duration limit, std::function<void(const std::string&)> write_stderr)
    : limit_(limit), write_stderr_(std::move(write_stderr)) {
  // Without it a driver that hangs is not named; the run goes on all the same.
  if (auto thread = base::StartThread([this] { Loop(); }); thread.ok()) {
    thread_ = *std::move(thread);
  }
}

DriverWatch::~DriverWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void DriverWatch::Ends(const absl::Status& why) {
  const std::lock_guard lock(mutex_);
  why_ = why;
  farewell_ = base::Deadline::In(limit_);
}

void DriverWatch::Loop() {
  std::unique_lock lock(mutex_);
  const std::chrono::nanoseconds pause = absl::ToChronoNanoseconds(limit_ / kLooks);
  while (!changed_.wait_for(lock, pause, [this] { return stopping_; })) {
    const std::chrono::nanoseconds longest =
        gpu::LongestDriverCall().value_or(std::chrono::nanoseconds(0));
    const bool hangs = absl::FromChrono(longest) >= limit_;
    if (farewell_.has_value() && !hangs && farewell_->Passed()) EndProcess(why_);
    if (!hangs) continue;
    const std::string words = absl::StrCat(
        "a call of the GPU's driver has not returned for ", absl::FormatDuration(limit_),
        ", so this rank ends; the kernel's log (dmesg, Xid) and nvidia-smi say more, and "
        "'geminictl status' whether the GPU's agent still answers");
    // What the rank ends for may be that very call.
    if (!farewell_.has_value()) EndProcess(absl::DeadlineExceededError(words));
    EndProcess(absl::Status(why_.code(), absl::StrCat(std::string(why_.message()), "; ", words)));
  }
}

void DriverWatch::EndProcess(const absl::Status& why) const {
  write_stderr_(absl::StrCat("geminid-train: ", std::string(why.message()), "\n"));
  _exit(base::ExitCodeOf(why.code()));
}

}  // namespace geminid::trainer
