// The C interface's only way out: it lets no exception pass, and reports each error once.
#ifndef GEMINID_CLIENT_C_API_ERRORS_H_
#define GEMINID_CLIENT_C_API_ERRORS_H_

#include <string>

#include "absl/status/status.h"
#include "geminid/c_api.h"

struct geminid_error {
  geminid_code code = GEMINID_OK;
  bool is_final = false;
  std::string message;
};

namespace geminid::c_api {

void Clear(geminid_error* error) noexcept;

// Returns the code, and writes code and message to `error`, which may be null.
geminid_code Report(geminid_error* error, const absl::Status& status) noexcept;

// Reports the exception that is being handled: RESOURCE_EXHAUSTED for bad_alloc, else INTERNAL.
geminid_code ReportException(geminid_error* error) noexcept;

// Runs `work`, which returns a status. It may set error->is_final.
template <typename Work>
geminid_code Guarded(geminid_error* error, const Work& work) noexcept {
  Clear(error);
  try {
    return Report(error, work());
  } catch (...) {
    return ReportException(error);
  }
}

}  // namespace geminid::c_api

#endif  // GEMINID_CLIENT_C_API_ERRORS_H_
