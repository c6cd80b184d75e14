#include "training/logs/wait_words.h"

#include "absl/strings/str_cat.h"

namespace geminid::trainer {
namespace {

constexpr absl::Duration kQuietWait = absl::Seconds(1);
// Nothing was heard for so long: the wait before is over, and this is another one.
constexpr absl::Duration kBetweenWaits = absl::Seconds(3);

}  // namespace

std::optional<std::string> WaitWords::Waits(absl::Time now, const std::string& what) {
  if (now - last_ > kBetweenWaits) {
    began_ = now;
    said_.clear();
  }
  last_ = now;
  if (now - began_ < kQuietWait || what == said_) return std::nullopt;
  said_ = what;
  return absl::StrCat("geminid-train: waits: ", what, "\n");
}

}  // namespace geminid::trainer
