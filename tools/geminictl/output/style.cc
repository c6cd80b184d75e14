#include "tools/geminictl/output/style.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace geminid::ctl {
namespace {

bool HasUtf8Locale(const Variables& variables) {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::optional<std::string> value = variables(variable);
    if (!value.has_value() || value->empty()) continue;
    const std::string locale = absl::AsciiStrToLower(*value);
    return absl::StrContains(locale, "utf-8") || absl::StrContains(locale, "utf8");
  }
  return false;
}

// The numbers of ECMA-48's "select graphic rendition".
const char* Code(Color color) {
  switch (color) {
    case Color::kBold:
      return "1";
    case Color::kDim:
      return "2";
    case Color::kRed:
      return "31";
    case Color::kGreen:
      return "32";
    case Color::kYellow:
      return "33";
  }
  return "0";
}

}  // namespace

Style ChooseStyle(bool out_is_terminal, bool no_color, const Variables& variables) {
  Style style;
  style.terminal = out_is_terminal && variables("TERM").value_or("") != "dumb";
  style.color = style.terminal && !no_color && variables("NO_COLOR").value_or("").empty();
  style.unicode = style.terminal && HasUtf8Locale(variables);
  return style;
}

std::string Paint(const std::string& text, Color color, const Style& style) {
  if (!style.color || text.empty()) return text;
  return absl::StrCat("\x1b[", Code(color), "m", text, "\x1b[0m");
}

}  // namespace geminid::ctl
