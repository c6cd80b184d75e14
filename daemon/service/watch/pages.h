// The beginning of a listing's next page, as opaque text that the caller hands back.
#ifndef GEMINID_DAEMON_SERVICE_WATCH_PAGES_H_
#define GEMINID_DAEMON_SERVICE_WATCH_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace geminid::service {

// Entries of one page: they are copied under the hub's mutex, in well under a millisecond.
inline constexpr size_t kPageEntries = 1000;

// The first entry that is not in the pages before: a session, and a chunk or pool of it.
struct PageStart {
  uint64_t session = 0;
  uint32_t item = 0;
};

std::string ToToken(const PageStart& start);
// An empty text: the beginning. INVALID_ARGUMENT for any text that ToToken does not make.
absl::StatusOr<PageStart> FromToken(const std::string& token);

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_WATCH_PAGES_H_
