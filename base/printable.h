#ifndef GEMINID_BASE_PRINTABLE_H_
#define GEMINID_BASE_PRINTABLE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace geminid::base {

inline constexpr uint32_t kReplacementCharacter = 0xfffd;

// A character of a text that should be UTF-8.
struct Character {
  uint32_t code = 0;  // U+FFFD where the byte is part of no character
  size_t bytes = 1;
  bool is_printable = true;
};

// The one that begins at `at`, which is within the text. Not printable: control characters, which
// can rewrite a terminal; those that change the direction of what follows, or end a line; what is
// never seen; bytes that are no UTF-8, for a terminal may take them for control characters.
Character CharacterAt(std::string_view text, size_t at);

// As an escape of JSON, or two: "\u009b".
void AppendEscape(uint32_t code, std::string* text);

// Names come from other people's programs: what is not printable becomes a question mark. Other
// UTF-8 stays.
std::string Printable(const std::string& text);

}  // namespace geminid::base

#endif  // GEMINID_BASE_PRINTABLE_H_
