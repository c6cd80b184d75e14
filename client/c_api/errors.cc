#include "client/c_api/errors.h"

#include <exception>
#include <new>
#include <string_view>

#include "geminid/c_api.h"

namespace geminid::c_api {
namespace {

// If no memory is left for the message, it stays empty; the code says enough.
geminid_code Put(geminid_error* error, geminid_code code, std::string_view message) noexcept {
  if (error == nullptr) return code;
  error->code = code;
  try {
    error->message = message;
  } catch (...) {
    error->message.clear();
  }
  return code;
}

}  // namespace

void Clear(geminid_error* error) noexcept {
  if (error == nullptr) return;
  error->code = GEMINID_OK;
  error->is_final = false;
  error->message.clear();
}

geminid_code Report(geminid_error* error, const absl::Status& status) noexcept {
  const std::string_view message(status.message().data(), status.message().size());
  return Put(error, static_cast<geminid_code>(status.code()), message);
}

geminid_code ReportException(geminid_error* error) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return Put(error, GEMINID_RESOURCE_EXHAUSTED, "this process is out of memory");
  } catch (const std::exception& exception) {
    return Put(error, GEMINID_INTERNAL, exception.what());
  } catch (...) {
    return Put(error, GEMINID_INTERNAL, "an exception of unknown type");
  }
}

}  // namespace geminid::c_api

geminid_error* geminid_error_new(void) { return new (std::nothrow) geminid_error; }

void geminid_error_free(geminid_error* error) { delete error; }

geminid_code geminid_error_code(const geminid_error* error) {
  return error == nullptr ? GEMINID_OK : error->code;
}

const char* geminid_error_message(const geminid_error* error) {
  return error == nullptr ? "" : error->message.c_str();
}

int geminid_error_is_final(const geminid_error* error) {
  return error != nullptr && error->is_final ? 1 : 0;
}
