#include "daemon/service/heritage/shortage.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/os/log.h"

namespace geminid::service {
namespace {

constexpr core::Duration kFirstPause = core::Duration::Milliseconds(10);
constexpr core::Duration kLongestPause = core::Duration::Seconds(1);

void Sleep(core::Duration pause) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(pause.nanoseconds()));
}

}  // namespace

bool IsShortage(const absl::Status& status) { return absl::IsResourceExhausted(status); }

Shortage::Shortage(Pause pause)
    : pause_(pause == nullptr ? Sleep : std::move(pause)), next_pause_(kFirstPause) {}

absl::Status Shortage::Outlast(const std::function<absl::Status()>& call) {
  for (;;) {
    absl::Status status = call();
    if (!IsShortage(status) || waited_ >= kShortagePatience) return status;
    os::Log(os::LogLevel::kWarning,
            "the sessions of an earlier daemon wait until the system has resources to serve them",
            {{"lacks", std::string(status.message())},
             {"waited_seconds", absl::StrCat(waited_.seconds())}});
    pause_(next_pause_);
    waited_ = waited_ + next_pause_;
    next_pause_ = std::min(next_pause_ + next_pause_, kLongestPause);
  }
}

}  // namespace geminid::service
