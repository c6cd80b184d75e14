// Files in a .tar.gz, made in memory. Pure.
#ifndef GEMINID_TOOLS_GEMINICTL_OUTPUT_ARCHIVE_H_
#define GEMINID_TOOLS_GEMINICTL_OUTPUT_ARCHIVE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace geminid::ctl {

struct ArchivedFile {
  std::string name;  // with its folders, at most kMaxArchivedName bytes
  std::string text;
};
inline constexpr size_t kMaxArchivedName = 99;

// The archive has the form that POSIX calls ustar and is compressed by gzip. Every file belongs to
// root, only its owner may read it, and it was changed at `unix_seconds`. The same files give the
// same bytes. INVALID_ARGUMENT for a name that is too long.
absl::StatusOr<std::string> TarGz(const std::vector<ArchivedFile>& files, int64_t unix_seconds);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_OUTPUT_ARCHIVE_H_
