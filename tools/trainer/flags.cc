#include "tools/trainer/flags.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"

namespace geminid::trainer {

void AddFlag(CLI::App* app, Flags* flags, const char* group, const FlagSpec& spec) {
  CLI::Option* option = app->add_option(spec.name, flags->*spec.value, spec.help);
  option->group(group)->type_name(spec.type)->take_last()->capture_default_str();
}

void AddFlags(CLI::App* app, Flags* flags, const char* group, std::span<const FlagSpec> specs) {
  for (const FlagSpec& spec : specs) AddFlag(app, flags, group, spec);
}

absl::Status WithFlag(const char* flag, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(flag, ": ", std::string(status.message())));
}

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
