#include "client/zero/core/shortage.h"

#include "absl/strings/str_cat.h"
#include "base/bytes.h"

namespace geminid::zero {

std::string Describe(const Shortage& shortage) {
  using base::FormatBytes;
  const uint64_t total = shortage.chunk_bytes + shortage.activation_bytes + shortage.state_bytes;
  std::string text = absl::StrCat(
      "the model does not fit: operator ", shortage.operation, " needs ",
      FormatBytes(shortage.chunk_bytes), " of gathered weights and gradients",
      shortage.parameters.empty() ? "" : absl::StrCat(" (of ", shortage.parameters, ")"), ", ",
      FormatBytes(shortage.activation_bytes), " of activations and ",
      FormatBytes(shortage.state_bytes), " of state, together ", FormatBytes(total), ", ");
  if (total > shortage.arena_bytes) {
    absl::StrAppend(&text, FormatBytes(total - shortage.arena_bytes),
                    " more than the device arena of ", FormatBytes(shortage.arena_bytes));
  } else {
    absl::StrAppend(&text, "and the free ", FormatBytes(shortage.arena_bytes - total),
                    " of the device arena of ", FormatBytes(shortage.arena_bytes),
                    " are fragmented");
  }
  return text;
}

}  // namespace geminid::zero
