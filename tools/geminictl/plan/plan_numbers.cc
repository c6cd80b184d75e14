#include "tools/geminictl/plan/plan_numbers.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/flag_values.h"
#include "base/status_macros.h"

namespace geminid::ctl {
namespace {

constexpr std::uint64_t kCountMax = (std::uint64_t{1} << 32) - 1;

}  // namespace

absl::Status WrongFlag(const char* flag, const std::string& text, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(base::WithValue(flag, text), what));
}

absl::Status NamedFlag(const std::string& flag, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", status.message()));
}

absl::Status ReadCount(const char* flag, const std::string& text, std::uint64_t* value) {
  if (text.empty()) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(*value, base::ParseCount(flag, text, 1, kCountMax));
  return absl::OkStatus();
}

absl::Status ReadCount(const char* flag, const std::string& text, std::uint32_t* value) {
  std::uint64_t count = *value;
  absl::Status status = ReadCount(flag, text, &count);
  *value = static_cast<std::uint32_t>(count);
  return status;
}

absl::Status ReadNumber(const char* flag, const std::string& text, double most, double* value) {
  if (text.empty()) return absl::OkStatus();
  double number = 0;
  if (!absl::SimpleAtod(text, &number) || !std::isfinite(number) || number <= 0 || number > most) {
    return WrongFlag(flag, text, absl::StrCat("it must be a number above 0 and at most ", most));
  }
  *value = number;
  return absl::OkStatus();
}

absl::Status ReadBytes(const char* flag, const std::string& text, std::uint64_t* value) {
  if (text.empty()) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(*value, base::ParseMemory(flag, text));
  return absl::OkStatus();
}

absl::Status ReadRate(const char* flag, const std::string& text, double* value) {
  if (text.empty()) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(const std::uint64_t rate, base::ParseBandwidth(flag, text));
  *value = static_cast<double>(rate);
  return absl::OkStatus();
}

absl::Status ReadLatency(const char* flag, const std::string& text, double* seconds) {
  if (text.empty()) return absl::OkStatus();
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration) || duration < absl::ZeroDuration() ||
      duration > absl::Seconds(1)) {
    return WrongFlag(flag, text, "it must be a time of at most a second, as in 10us");
  }
  *seconds = absl::ToDoubleSeconds(duration);
  return absl::OkStatus();
}

}  // namespace geminid::ctl
