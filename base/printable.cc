#include "base/printable.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_format.h"

namespace geminid::base {
namespace {

struct Range {
  uint32_t first;
  uint32_t last;
};
constexpr Range kNotPrintable[] = {
    {0x0, 0x1f},         // control characters
    {0x7f, 0x9f},        // delete, and the other control characters
    {0x61c, 0x61c},      // Arabic letter mark
    {0x200e, 0x200f},    // left-to-right and right-to-left mark
    {0x2028, 0x202e},    // ends of lines and paragraphs; embeddings and overrides
    {0x2066, 0x2069},    // isolates
    {0x206a, 0x206f},    // deprecated format characters
    {0xfeff, 0xfeff},    // byte order mark
    {0xfff9, 0xfffb},    // annotations
    {0xe0000, 0xe007f},  // tags
};

// The length of a character by its first byte, and the least code with that length; 0: none.
struct Form {
  size_t bytes;
  uint32_t bits;
  uint32_t least;
};
Form FormOf(unsigned char first) {
  if (first < 0x80) return {1, first, 0};
  if (first >= 0xc2 && first < 0xe0) return {2, first & 0x1fU, 0x80};
  if (first >= 0xe0 && first < 0xf0) return {3, first & 0x0fU, 0x800};
  if (first >= 0xf0 && first < 0xf5) return {4, first & 0x07U, 0x10000};
  return {0, 0, 0};
}

}  // namespace

Character CharacterAt(std::string_view text, size_t at) {
  constexpr Character kNone = {.code = kReplacementCharacter, .bytes = 1, .is_printable = false};
  const Form form = FormOf(static_cast<unsigned char>(text[at]));
  if (form.bytes == 0 || form.bytes > text.size() - at) return kNone;
  uint32_t code = form.bits;
  for (size_t i = 1; i < form.bytes; ++i) {
    const auto byte = static_cast<unsigned char>(text[at + i]);
    if ((byte & 0xc0) != 0x80) return kNone;
    code = code << 6 | (byte & 0x3fU);
  }
  const bool is_half = code >= 0xd800 && code <= 0xdfff;  // of a UTF-16 pair
  if (code < form.least || code > 0x10ffff || is_half) return kNone;
  const bool is_printable =
      std::none_of(std::begin(kNotPrintable), std::end(kNotPrintable),
                   [code](Range range) { return code >= range.first && code <= range.last; });
  return {.code = code, .bytes = form.bytes, .is_printable = is_printable};
}

void AppendEscape(uint32_t code, std::string* text) {
  constexpr uint32_t kFirstOfTwo = 0x10000;
  if (code < kFirstOfTwo) {
    absl::StrAppendFormat(text, "\\u%04x", code);
    return;
  }
  const uint32_t beyond = code - kFirstOfTwo;
  absl::StrAppendFormat(text, "\\u%04x\\u%04x", 0xd800 + (beyond >> 10), 0xdc00 + (beyond & 0x3ff));
}

std::string Printable(const std::string& text) {
  std::string printable;
  printable.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Character next = CharacterAt(text, at);
    if (next.is_printable) {
      printable.append(text, at, next.bytes);
    } else {
      printable += '?';
    }
    at += next.bytes;
  }
  return printable;
}

}  // namespace geminid::base
