// Checks and converts callers' arguments: structs that carry their size, strings, enumerations.
#ifndef GEMINID_CLIENT_C_API_ARGUMENTS_H_
#define GEMINID_CLIENT_C_API_ARGUMENTS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace geminid::c_api {

// INVALID_ARGUMENT that names the null argument.
absl::Status IsNull(const char* name);
template <typename Argument>
absl::Status CheckGiven(const Argument* argument, const char* name) {
  return argument == nullptr ? IsNull(name) : absl::OkStatus();
}

// Empty for null; INVALID_ARGUMENT for text that is not UTF-8.
absl::StatusOr<std::string> Text(const char* text, const char* name);

// A copy that the caller frees with geminid_free.
absl::StatusOr<char*> NewText(const std::string& text);

// INVALID_ARGUMENT, with the range, if the number is outside it.
absl::Status CheckNumber(int64_t number, int64_t lowest, int64_t highest, const char* name);

absl::StatusOr<absl::Duration> SecondsOf(double seconds, const char* name);

inline std::optional<double> UnlessNan(double number) {
  return std::isnan(number) ? std::nullopt : std::optional<double>(number);
}

// `size` is the struct's size in the caller's header. A newer header's struct may be larger than
// `known` bytes if the rest is zeros. An older header's struct must have at least `least` bytes,
// the size from which on the struct has grown.
absl::Status CheckSize(const void* given, size_t size, size_t least, size_t known,
                       const char* name);

// Implements an _init function.
template <typename Struct>
void Init(Struct* given, size_t size, const Struct& defaults) {
  if (given == nullptr || size < sizeof given->struct_size) return;
  std::memset(static_cast<void*>(given), 0, size);
  std::memcpy(static_cast<void*>(given), &defaults, std::min(size, sizeof defaults));
  given->struct_size = size;
}

// For a struct that has grown since it had `least` bytes: fields that an older header lacks get the
// values of its _init function, `init`.
template <typename Struct>
struct Growth {
  size_t least = sizeof(Struct);
  void (*init)(Struct* filled, size_t struct_size) = nullptr;
};

template <typename Struct>
absl::StatusOr<Struct> Read(const Struct* given, const char* name, Growth<Struct> growth = {}) {
  if (absl::Status status = CheckGiven(given, name); !status.ok()) return status;
  const size_t size = given->struct_size;
  absl::Status status = CheckSize(given, size, growth.least, sizeof *given, name);
  if (!status.ok()) return status;
  Struct read = {};
  if (growth.init != nullptr) growth.init(&read, sizeof read);
  std::memcpy(static_cast<void*>(&read), given, std::min(size, sizeof read));
  return read;
}

// Element `index` of an array; the first element's struct_size is the distance between elements.
template <typename Struct>
absl::StatusOr<Struct> ReadElement(const Struct* first, size_t index, const char* name,
                                   Growth<Struct> growth = {}) {
  const auto* const element = reinterpret_cast<const Struct*>(
      reinterpret_cast<const std::byte*>(first) + index * first->struct_size);
  absl::StatusOr<Struct> value = Read(element, name, growth);
  if (value.ok() && value->struct_size != first->struct_size) {
    return absl::InvalidArgumentError(absl::StrCat(name, " ", index, " has struct_size ",
                                                   value->struct_size, ", and the first has ",
                                                   first->struct_size));
  }
  return value;
}

// Checks a struct for results before the work begins; null is allowed.
template <typename Struct>
absl::Status CheckResult(const Struct* result, const char* name) {
  if (result == nullptr) return absl::OkStatus();
  return CheckSize(nullptr, result->struct_size, sizeof *result, sizeof *result, name);
}

template <typename Struct>
void Write(Struct* result, Struct value) {
  if (result == nullptr) return;
  value.struct_size = result->struct_size;
  *result = value;
}

}  // namespace geminid::c_api

#endif  // GEMINID_CLIENT_C_API_ARGUMENTS_H_
