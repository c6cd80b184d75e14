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

std::vector<std::string> FlagsOf(const std::vector<const CLI::App*>& chosen) {
  std::vector<std::string> flags;
  for (const CLI::App* app : chosen) {
    for (const CLI::Option* option : app->get_options()) {
      for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
    }
  }
  return flags;
}

bool IsFlag(const std::string& word) { return absl::StartsWith(word, "-"); }

}  // namespace

std::string DescribeParseError(const CLI::App& app, const CLI::Error& error) {
  const std::vector<const CLI::App*> chosen = Chosen(app);
  const std::string command = absl::StrJoin(chosen, " ", [](std::string* out, const CLI::App* one) {
    absl::StrAppend(out, one->get_name());
  });
  const std::string hint = absl::StrCat(" '", command, " --help' lists what there is");
  const std::vector<std::string> subcommands = SubcommandsOf(*chosen.back());
  std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  if (!unknown.empty()) {
    // What follows a flag that is not known may have been meant for its value.
    const auto flag = std::find_if(unknown.begin(), unknown.end(), IsFlag);
    std::string word = flag == unknown.end() ? unknown.front() : *flag;
    word = IsFlag(word) ? word.substr(0, word.find('=')) : word;
    const std::string meant = DidYouMean(word, IsFlag(word) ? FlagsOf(chosen) : subcommands);
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
    if (option->get_items_expected_max() == 0) continue;  // it takes no value
    option->check([](const std::string& value) -> std::string {
      return value.empty() ? "is empty; give a value, or leave it out" : "";
    });
  }
  for (CLI::App* sub : app->get_subcommands(nullptr)) RefuseEmptyValues(sub);
}

}  // namespace geminid::base
