#include "base/command_line.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/suggest.h"

namespace geminid::base {
namespace {

// The program, and the subcommands that were understood.
std::vector<const CLI::App*> Chosen(const CLI::App& app) {
  std::vector<const CLI::App*> chosen = {&app};
  while (!chosen.back()->get_subcommands().empty()) {
    chosen.push_back(chosen.back()->get_subcommands().front());
  }
  return chosen;
}

std::vector<std::string> SubcommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands(nullptr)) names.push_back(sub->get_name());
  return names;
}

std::vector<std::string> FlagsOf(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

// The flags allowed after the last of `chosen`, including those of earlier commands that it passes
// unknown flags on to.
std::vector<std::string> FlagsAfter(const std::vector<const CLI::App*>& chosen) {
  std::vector<std::string> flags = FlagsOf(*chosen.back());
  for (size_t i = chosen.size() - 1; i > 0 && chosen[i]->get_fallthrough(); --i) {
    const std::vector<std::string> more = FlagsOf(*chosen[i - 1]);
    flags.insert(flags.end(), more.begin(), more.end());
  }
  return flags;
}

// "; it is a flag of 'geminid-train'", if a command before the last one has the flag.
std::string OwnerOf(const std::string& flag, const std::vector<const CLI::App*>& chosen) {
  std::string command;
  for (size_t i = 0; i + 1 < chosen.size(); ++i) {
    absl::StrAppend(&command, i == 0 ? "" : " ", chosen[i]->get_name());
    const std::vector<std::string> flags = FlagsOf(*chosen[i]);
    if (std::ranges::find(flags, flag) == flags.end()) continue;
    return absl::StrCat("; it is a flag of '", command, "' alone;");
  }
  return "";
}

// The flag in CLI11's "--steps: 1 required TEXT missing"; empty: another error. It says so of a
// flag at the end and of "--steps=" alike.
std::string FlagWithoutValue(const CLI::Error& error) {
  const std::string words = error.what();
  if (error.get_name() != "ArgumentMismatch" || !absl::EndsWith(words, " missing")) return "";
  return words.substr(0, words.find(": "));
}

bool IsFlag(const std::string& word) { return absl::StartsWith(word, "-"); }

}  // namespace

bool HasUnknownWords(const CLI::App& app) { return !app.remaining(/*recurse=*/true).empty(); }

std::string DescribeParseError(const CLI::App& app, const CLI::Error& error) {
  const std::vector<const CLI::App*> chosen = Chosen(app);
  const std::string command = absl::StrJoin(chosen, " ", [](std::string* out, const CLI::App* one) {
    absl::StrAppend(out, one->get_name());
  });
  const std::string hint = absl::StrCat(" '", command, " --help' lists all flags");
  // A value that was refused comes first: where a flag took the place of the value, the value of
  // that flag is left over, as an unknown word.
  if (error.get_name() == "ValidationError") return absl::StrCat(error.what(), ";", hint);
  if (const std::string flag = FlagWithoutValue(error); !flag.empty()) {
    return absl::StrCat(flag, ": has no value; give one, or leave it out;", hint);
  }
  const std::vector<std::string> subcommands = SubcommandsOf(*chosen.back());
  std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  if (!unknown.empty()) {
    // A word after an unknown flag may have been meant as its value. Flags after a misspelt
    // subcommand are unknown because of it.
    auto flag = std::find_if(unknown.begin(), unknown.end(), IsFlag);
    if (!DidYouMean(unknown.front(), subcommands).empty()) flag = unknown.end();
    std::string word = flag == unknown.end() ? unknown.front() : *flag;
    word = IsFlag(word) ? word.substr(0, word.find('=')) : word;
    std::string meant = IsFlag(word) ? OwnerOf(word, chosen) : "";
    if (meant.empty()) meant = DidYouMean(word, IsFlag(word) ? FlagsAfter(chosen) : subcommands);
    // The flag may have stood before the subcommand.
    for (size_t i = 0; meant.empty() && IsFlag(word) && i < chosen.size(); ++i) {
      meant = DidYouMean(word, FlagsOf(*chosen[i]));
    }
    return absl::StrCat("'", word, "' is not known", meant.empty() ? ";" : meant, hint);
  }
  if (!subcommands.empty()) {
    return absl::StrCat("'", command, "' needs one of ", absl::StrJoin(subcommands, ", "), ";",
                        hint);
  }
  return absl::StrCat(error.what(), ";", hint);
}

void RefuseEmptyValues(CLI::App* app) {
  for (CLI::Option* option : app->get_options()) {
    if (option->get_items_expected_max() == 0) continue;  // takes no value
    option->check([app](const std::string& value) -> std::string {
      if (value.empty()) return "is empty; give a value, or leave it out";
      const std::vector<std::string> flags = FlagsOf(*app);
      const std::string flag = value.substr(0, value.find('='));
      if (std::ranges::find(flags, flag) == flags.end()) return "";
      return absl::StrCat("has no value: the flag ", flag,
                          " follows; give a value, or leave it out");
    });
  }
  for (CLI::App* sub : app->get_subcommands(nullptr)) RefuseEmptyValues(sub);
}

}  // namespace geminid::base
