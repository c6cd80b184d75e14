// Functions without handles: the version, the names of codes, and the memory of strings.
#include <array>
#include <cstdlib>

#include "geminid/c_api.h"

const char* geminid_version(void) { return GEMINID_VERSION; }

const char* geminid_code_name(geminid_code code) {
  static constexpr std::array kNames = {"OK",
                                        "CANCELLED",
                                        "UNKNOWN",
                                        "INVALID_ARGUMENT",
                                        "DEADLINE_EXCEEDED",
                                        "NOT_FOUND",
                                        "ALREADY_EXISTS",
                                        "PERMISSION_DENIED",
                                        "RESOURCE_EXHAUSTED",
                                        "FAILED_PRECONDITION",
                                        "ABORTED",
                                        "OUT_OF_RANGE",
                                        "UNIMPLEMENTED",
                                        "INTERNAL",
                                        "UNAVAILABLE",
                                        "DATA_LOSS",
                                        "UNAUTHENTICATED"};
  const bool known = code >= 0 && code < static_cast<geminid_code>(kNames.size());
  return known ? kNames[static_cast<size_t>(code)] : "UNKNOWN";
}

void geminid_free(void* memory) { std::free(memory); }
