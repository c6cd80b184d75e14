#include "training/settings/flag_words.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace geminid::trainer {

absl::Status WithFlag(const std::string& flag, const absl::Status& status) {
  if (status.ok() || absl::StartsWith(status.message(), "--")) return status;
  return absl::Status(status.code(), absl::StrCat(flag, ": ", std::string(status.message())));
}

absl::Status WithPath(const std::string& flag, const std::string& path,
                      const absl::Status& status) {
  const std::string begins = absl::StrCat(flag, " ", path, ": ");
  absl::string_view words = status.message();
  if (status.ok() || absl::StartsWith(words, "--")) return status;
  const bool is_subject = absl::ConsumePrefix(&words, absl::StrCat("'", path, "' "));
  if (!is_subject) absl::ConsumePrefix(&words, absl::StrCat(path, ": "));
  return absl::Status(status.code(), absl::StrCat(begins, is_subject ? "it " : "", words));
}

}  // namespace geminid::trainer
