#include "base/printable.h"

namespace geminid::base {

std::string Printable(const std::string& text) {
  std::string printable;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool control = byte < 0x20 || byte == 0x7f;
    // U+0080 to U+009F, the other control characters, are C2 80 to C2 9F in UTF-8.
    const bool control_pair = byte == 0xc2 && i + 1 < text.size() &&
                              static_cast<unsigned char>(text[i + 1]) >= 0x80 &&
                              static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (control_pair) ++i;
    printable += control || control_pair ? '?' : text[i];
  }
  return printable;
}

}  // namespace geminid::base
