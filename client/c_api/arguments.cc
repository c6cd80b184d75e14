#include "client/c_api/arguments.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace geminid::c_api {
namespace {

// The number of bytes that follow a character's first byte; -1 if no character begins with it.
int FollowingBytes(unsigned char first) {
  if (first < 0x80) return 0;
  if (first >= 0xc2 && first <= 0xdf) return 1;
  if (first >= 0xe0 && first <= 0xef) return 2;
  if (first >= 0xf0 && first <= 0xf4) return 3;
  return -1;
}

// Overlong forms, surrogates, and numbers beyond Unicode.
bool IsForbidden(unsigned char first, unsigned char second) {
  return (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
         (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f);
}

bool IsUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
    const int following = FollowingBytes(byte(i));
    if (following < 0 || i + static_cast<size_t>(following) >= text.size()) return false;
    for (int k = 1; k <= following; ++k) {
      if ((byte(i + static_cast<size_t>(k)) & 0xc0) != 0x80) return false;
    }
    if (following > 0 && IsForbidden(byte(i), byte(i + 1))) return false;
    i += static_cast<size_t>(following) + 1;
  }
  return true;
}

}  // namespace

absl::Status IsNull(const char* name) {
  return absl::InvalidArgumentError(absl::StrCat(name, " is NULL"));
}

absl::StatusOr<std::string> Text(const char* text, const char* name) {
  if (text == nullptr) return std::string();
  if (!IsUtf8(text)) return absl::InvalidArgumentError(absl::StrCat(name, " is not UTF-8"));
  return std::string(text);
}

absl::StatusOr<char*> NewText(const std::string& text) {
  auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) return absl::ResourceExhaustedError("this process is out of memory");
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

absl::Status CheckNumber(int64_t number, int64_t lowest, int64_t highest, const char* name) {
  if (number >= lowest && number <= highest) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", number, "; it must be from ", lowest, " to ", highest));
}

absl::StatusOr<absl::Duration> SecondsOf(double seconds, const char* name) {
  // The smallest numbers are no duration. NaN fails the first comparison.
  if (seconds > 0 && absl::Seconds(seconds) > absl::ZeroDuration()) return absl::Seconds(seconds);
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", seconds, "; it must be above 0, in seconds"));
}

absl::Status CheckSize(const void* given, size_t size, size_t least, size_t known,
                       const char* name) {
  if (size < least) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has struct_size ", size, ", and this library needs ", least,
                     "; fill it with its _init function before anything else"));
  }
  if (given == nullptr || size <= known) return absl::OkStatus();
  const auto* const bytes = static_cast<const unsigned char*>(given);
  if (std::any_of(bytes + known, bytes + size, [](unsigned char byte) { return byte != 0; })) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " sets bytes beyond the ", known, " that this library, version ",
                     GEMINID_VERSION, ", knows; install a newer library, or leave those bytes 0"));
  }
  return absl::OkStatus();
}

}  // namespace geminid::c_api
