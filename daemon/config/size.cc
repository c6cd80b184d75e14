#include "daemon/config/size.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/flag_values.h"

namespace geminid::config {

absl::StatusOr<uint64_t> ParseSize(const std::string& text) {
  absl::StatusOr<uint64_t> bytes = base::ParseBytes(text);
  const std::optional<std::string> lacks = base::LacksUnit(text);
  if (!bytes.ok() || !lacks.has_value()) return bytes;
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' has no unit: ", *lacks));
}

}  // namespace geminid::config
