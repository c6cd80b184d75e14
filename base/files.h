// Whole small files.
#ifndef GEMINID_BASE_FILES_H_
#define GEMINID_BASE_FILES_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace geminid::base {

// INVALID_ARGUMENT for more than `max_bytes`, which are not read, and for what is no regular file;
// else what the system says. Never waits for a pipe. Errors name the file.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes);

// What the kernel says under /proc or /sys; nothing where it has no such file.
std::string ReadKernelFile(const std::string& path);

// Replaces the file at `path` by `text` in one instant or not at all: a temporary file beside it,
// synced, then renamed. Everybody may read it whom the umask allows. A device or a pipe is written
// to and stays.
absl::Status ReplaceFile(const std::string& path, const std::string& text);

}  // namespace geminid::base

#endif  // GEMINID_BASE_FILES_H_
