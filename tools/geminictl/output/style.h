// How output may be formatted.
#ifndef GEMINID_TOOLS_GEMINICTL_OUTPUT_STYLE_H_
#define GEMINID_TOOLS_GEMINICTL_OUTPUT_STYLE_H_

#include <functional>
#include <optional>
#include <string>

namespace geminid::ctl {

// The value of an environment variable, if it is set.
using Variables = std::function<std::optional<std::string>(const std::string& name)>;

struct Style {
  bool terminal = false;  // a person reads it: numbers have spaces before their units
  bool color = false;
  bool unicode = false;  // false: draws only ASCII
};

// Colour needs a terminal, no --no-color, and NO_COLOR unset or empty; Unicode needs a terminal
// and a UTF-8 locale (LC_ALL, LC_CTYPE, LANG; the first that is set counts).
Style ChooseStyle(bool out_is_terminal, bool no_color, const Variables& variables);

enum class Color { kBold, kDim, kRed, kGreen, kYellow };

// `text` between escape sequences, or unchanged if the style has no colour.
std::string Paint(const std::string& text, Color color, const Style& style);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_OUTPUT_STYLE_H_
