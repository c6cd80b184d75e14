#include "tools/trainer/flags/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "absl/strings/str_cat.h"

namespace geminid::trainer {

void AddFlag(CLI::App* app, Flags* flags, const char* group, const FlagSpec& spec,
             RepeatRule repeated) {
  CLI::Option* option = app->add_option(spec.name, flags->*spec.value, spec.help);
  option->group(group)->type_name(spec.type)->capture_default_str();
  if (repeated == RepeatRule::kAllCount) {
    option->join(kBetweenValues);
  } else {
    option->take_last();
  }
}

std::vector<std::string> RepeatedFlags(const CLI::App& app) {
  std::vector<std::string> lines;
  for (const CLI::Option* option : app.get_options()) {
    const std::vector<std::string>& values = option->results();
    const bool differ = std::ranges::any_of(
        values, [&](const std::string& value) { return value != values.back(); });
    const bool last_counts =
        option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeLast;
    if (!differ || !last_counts) continue;
    lines.push_back(absl::StrCat(option->get_name(), " is given ", values.size(),
                                 " times; the last one counts: ", values.back()));
  }
  return lines;
}

void AddFlags(CLI::App* app, Flags* flags, const char* group, std::span<const FlagSpec> specs) {
  for (const FlagSpec& spec : specs) AddFlag(app, flags, group, spec);
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
