#include "tools/trainer/phase.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"

namespace geminid::trainer {
namespace {

constexpr std::chrono::seconds kFirst(2);
constexpr std::chrono::seconds kInterval(5);

}  // namespace

Phase::Phase(std::string what, Write write, Clock::time_point now)
    : what_(std::move(what)), write_(std::move(write)), next_(now + kFirst) {}

void Phase::Bytes(uint64_t done, uint64_t of, Clock::time_point now) {
  if (!IsDue(now)) return;
  Say(now, absl::StrCat(base::FormatBytes(done), " of ", base::FormatBytes(of)));
}

void Phase::Count(uint64_t done, uint64_t of, const char* unit, Clock::time_point now) {
  if (!IsDue(now)) return;
  Say(now, absl::StrCat(done, " of ", of, " ", unit));
}

void Phase::Say(Clock::time_point now, const std::string& how_far) {
  write_(absl::StrCat("geminid-train: ", what_, ": ", how_far, "\n"));
  next_ = now + kInterval;
}

}  // namespace geminid::trainer
