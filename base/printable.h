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
  uint32_t code = 0;  // U+FFFD if the byte belongs to no valid character
  size_t bytes = 1;
  bool is_printable = true;
};

// The character at `at`, which is within the text. Not printable are control characters, which can
// rewrite a terminal, and characters that change the text's direction, end a line or are invisible.
// Nor are bytes that are not UTF-8, because a terminal may take them for control characters.
Character CharacterAt(std::string_view text, size_t at);

// Appends it as one or two JSON escapes: "\u009b".
void AppendEscape(uint32_t code, std::string* text);

// Makes names from other programs printable: characters that are not become question marks. Other
// UTF-8 stays.
std::string Printable(const std::string& text);

}  // namespace geminid::base

#endif  // GEMINID_BASE_PRINTABLE_H_
