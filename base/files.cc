#include "base/files.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/system_error.h"
#include "base/unique_fd.h"

namespace geminid::base {
namespace {

constexpr size_t kReadBytes = size_t{1} << 16;
constexpr mode_t kEverybodyReads = 0644;

// As mkostemp, but only the umask restricts the file's mode. If the result is invalid, see errno.
UniqueFd CreateBeside(const std::string& path, std::string* name) {
  for (uint32_t number = 0;; ++number) {
    *name = absl::StrCat(path, ".", ::getpid(), "-", ::gettid(), "-", number);
    UniqueFd fd(::open(name->c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kEverybodyReads));
    if (fd.valid() || errno != EEXIST) return fd;
  }
}

bool WriteAll(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t written =
        RetryOnEintr([&] { return ::write(fd, text.data() + done, text.size() - done); });
    if (written < 0) return false;
    done += static_cast<size_t>(written);
  }
  return true;
}

// Writes into a device or a pipe, which must not be replaced by a file.
absl::Status WriteIntoDevice(const std::string& path, mode_t mode, const std::string& text) {
  if (S_ISDIR(mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": a folder; name a file in it"));
  }
  // A pipe without a reader is an error, not a reason to wait.
  const UniqueFd fd(RetryOnEintr(
      [&] { return ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); }));
  if (!fd.valid()) return SystemError(errno, "open", path);
  if (::fcntl(fd.get(), F_SETFL, 0) != 0) return SystemError(errno, "fcntl", path);
  return WriteAll(fd.get(), text) ? absl::OkStatus() : SystemError(errno, "write", path);
}

absl::Status TooLarge(const std::string& path, size_t max_bytes) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": larger than the ", max_bytes, " bytes that are read"));
}

absl::Status CheckFile(int fd, const std::string& path, size_t max_bytes) {
  struct stat file = {};
  if (::fstat(fd, &file) != 0) return SystemError(errno, "fstat", path);
  if (S_ISDIR(file.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": a folder; name a file in it"));
  }
  if (!S_ISREG(file.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a pipe or a device; save its output as a file"));
  }
  return static_cast<uint64_t>(file.st_size) > max_bytes ? TooLarge(path, max_bytes)
                                                         : absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  // Otherwise opening a pipe would wait for a writer.
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  const UniqueFd fd(RetryOnEintr([&] { return ::open(path.c_str(), kFlags); }));
  if (!fd.valid()) return SystemError(errno, "open", path);
  if (absl::Status status = CheckFile(fd.get(), path, max_bytes); !status.ok()) return status;
  std::string text;
  for (size_t size = 0; size <= max_bytes;) {
    text.resize(size + std::min(kReadBytes, max_bytes + 1 - size));
    const ssize_t got =
        RetryOnEintr([&] { return ::read(fd.get(), text.data() + size, text.size() - size); });
    if (got < 0) return SystemError(errno, "read", path);
    size += static_cast<size_t>(got);
    text.resize(size);
    if (got == 0) return text;
  }
  return TooLarge(path, max_bytes);
}

std::string ReadKernelFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

absl::Status CheckFileLimit(const std::string& path, uint64_t bytes) {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      bytes <= limit.rlim_cur) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      path, ": the file needs ", FormatBytes(bytes), ", and a file of this process may have ",
      FormatBytes(limit.rlim_cur), "; raise the limit, or lift it with ulimit -f unlimited"));
}

absl::Status ReplaceFile(const std::string& path, const std::string& text) {
  struct stat there = {};
  if (::stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
    return WriteIntoDevice(path, there.st_mode, text);
  }
  std::string temporary;
  const UniqueFd fd = CreateBeside(path, &temporary);
  if (!fd.valid()) return SystemError(errno, "creating a file beside it", path);
  absl::Cleanup remove = [&] { ::unlink(temporary.c_str()); };
  if (!WriteAll(fd.get(), text)) return SystemError(errno, "write", path);
  if (::fsync(fd.get()) != 0) return SystemError(errno, "fsync", path);
  if (std::rename(temporary.c_str(), path.c_str()) != 0) return SystemError(errno, "rename", path);
  std::move(remove).Cancel();
  return absl::OkStatus();
}

}  // namespace geminid::base
