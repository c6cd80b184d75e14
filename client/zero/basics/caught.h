// Calls functions of the trainer. Their exceptions become errors, because the engine's threads and
// the other ranks must go on.
#ifndef GEMINID_CLIENT_ZERO_BASICS_CAUGHT_H_
#define GEMINID_CLIENT_ZERO_BASICS_CAUGHT_H_

#include <exception>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace geminid::zero {

// Returns the status of `call`, or CANCELLED if it throws. `what`: the function, for people.
template <typename Call>
absl::Status Caught(const char* what, const Call& call) {
  try {
    return call();
  } catch (const std::exception& exception) {
    return absl::CancelledError(absl::StrCat(what, " threw an exception: ", exception.what()));
  } catch (...) {
    return absl::CancelledError(absl::StrCat(what, " threw an exception of unknown type"));
  }
}

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_BASICS_CAUGHT_H_
