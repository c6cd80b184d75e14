// A number with its noun, for messages.
#ifndef GEMINID_BASE_COUNTED_H_
#define GEMINID_BASE_COUNTED_H_

#include <concepts>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace geminid::base {

// "1 rank", "2 ranks", "0 ranks". For nouns whose plural ends with an added s.
std::string Counted(std::integral auto number, absl::string_view noun) {
  return absl::StrCat(number, " ", noun, number == 1 ? "" : "s");
}

}  // namespace geminid::base

#endif  // GEMINID_BASE_COUNTED_H_
