#ifndef GEMINID_BASE_PRINTABLE_H_
#define GEMINID_BASE_PRINTABLE_H_

#include <string>

namespace geminid::base {

// Names come from other people's programs: control characters, which could rewrite the terminal,
// become question marks. Other UTF-8 stays.
std::string Printable(const std::string& text);

}  // namespace geminid::base

#endif  // GEMINID_BASE_PRINTABLE_H_
