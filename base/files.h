// Reads and writes small files as a whole.
#ifndef GEMINID_BASE_FILES_H_
#define GEMINID_BASE_FILES_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace geminid::base {

// INVALID_ARGUMENT for a file of more than `max_bytes`, which is not read, and for anything but a
// regular file; else the system's error. Never waits for a pipe. Errors name the file.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes);

// Reads a file under /proc or /sys; empty if the kernel has no such file.
std::string ReadKernelFile(const std::string& path);

// RESOURCE_EXHAUSTED if a file of so many bytes is larger than this process may write (ulimit -f).
// The system ends a process by SIGXFSZ that writes more.
absl::Status CheckFileLimit(const std::string& path, uint64_t bytes);

// Replaces the file at `path` by `text` atomically: writes a temporary file beside it, syncs it,
// and renames it. The umask alone restricts who may read it. If `path` is a device or a pipe,
// writes into it.
absl::Status ReplaceFile(const std::string& path, const std::string& text);

}  // namespace geminid::base

#endif  // GEMINID_BASE_FILES_H_
