#include "tools/trainer/flags.h"

#include "absl/strings/str_cat.h"

namespace geminid::trainer {

absl::Status CheckOwnedFlags(const Flags& flags, std::span<const OwnedFlag> owned, uint32_t kind,
                             const char* choice, std::span<const char* const> names) {
  for (const OwnedFlag& flag : owned) {
    if ((flag.kinds >> kind & 1) != 0 || (flags.*flag.spec.value).empty()) continue;
    std::string owners;
    for (uint32_t i = 0; i < names.size(); ++i) {
      if ((flag.kinds >> i & 1) != 0)
        absl::StrAppend(&owners, owners.empty() ? "" : ", ", names[i]);
    }
    return absl::InvalidArgumentError(absl::StrCat(flag.spec.name, " is for ", choice, " ", owners,
                                                   ", but that is ", names[kind],
                                                   "; leave it out"));
  }
  return absl::OkStatus();
}

}  // namespace geminid::trainer
