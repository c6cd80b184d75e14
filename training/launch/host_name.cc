#include "training/launch/host_name.h"

#include <unistd.h>

#include <algorithm>
#include <climits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/loopback.h"

namespace geminid::trainer {

absl::Status CheckHostName(const std::string& name) {
  const bool is_plain = std::all_of(name.begin(), name.end(), absl::ascii_isgraph);
  if (!is_plain) {
    return absl::InvalidArgumentError(
        "the name of a host has printable characters alone and no blanks");
  }
  if (absl::StartsWith(name, "-")) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", name, "' is not the name of a host: it begins with '-'"));
  }
  if (absl::StartsWith(name, "@") || AddressOf(name).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", name, "' is not the name of a host, which is HOST or USER@HOST"));
  }
  return absl::OkStatus();
}

bool IsThisHost(const std::string& name) {
  char own[HOST_NAME_MAX + 1] = {};
  gethostname(own, HOST_NAME_MAX);
  return base::IsLoopback(name) || name == own;
}

}  // namespace geminid::trainer
