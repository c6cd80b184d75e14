// Asynchronous reads and writes of files: by io_uring, or by threads if the system forbids
// io_uring. Tests inject failures here.
#ifndef GEMINID_CLIENT_DISK_FILE_IO_H_
#define GEMINID_CLIENT_DISK_FILE_IO_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/deadline.h"

namespace geminid::disk {

enum class IoKind : uint8_t {
  kRead,
  kWrite,
  kSync,  // fdatasync: earlier writes are on the disk
};

struct IoRequest {
  IoKind kind = IoKind::kRead;
  int fd = -1;
  uint64_t offset = 0;
  std::byte* data = nullptr;
  uint32_t bytes = 0;
  uint64_t tag = 0;  // returned with the result
};

struct IoResult {
  uint64_t tag = 0;
  int64_t result = 0;  // bytes, perhaps fewer than requested; or a negative errno
};

// Used by one thread at a time.
class FileIo {
 public:
  virtual ~FileIo() = default;  // waits until all requests have ended

  // Submits the requests to the system. The caller keeps at most depth() in progress, and leaves
  // their data alone until their results are there. After an error nothing may be started any more.
  virtual absl::Status Start(std::span<const IoRequest> requests) = 0;

  // Returns the available results, and waits for one if there are none. DEADLINE_EXCEEDED if none.
  virtual absl::StatusOr<std::vector<IoResult>> Wait(const base::Deadline& deadline) = 0;

  // Memory for the requests' data while this object lives: the kernel may keep it mapped. An error
  // affects only the speed. Call at most once.
  virtual absl::Status UseBuffers(std::span<const std::span<std::byte>> buffers) = 0;

  virtual uint32_t depth() const = 0;
  // For people: "io_uring", "8 threads, since ...".
  virtual std::string how() const = 0;
};

struct FileIoOptions {
  uint32_t depth = 64;
  bool uring = true;  // false: threads
};

// RESOURCE_EXHAUSTED if the system gives neither a ring nor a thread.
absl::StatusOr<std::unique_ptr<FileIo>> MakeFileIo(const FileIoOptions& options);

// UNAVAILABLE, with words that end a sentence, if there is no io_uring.
absl::StatusOr<std::unique_ptr<FileIo>> MakeUringIo(uint32_t depth);
// `why` there is no io_uring, for how().
absl::StatusOr<std::unique_ptr<FileIo>> MakeThreadIo(uint32_t depth, std::string why);

}  // namespace geminid::disk

#endif  // GEMINID_CLIENT_DISK_FILE_IO_H_
