// Reads and writes of files that go on while the caller does something else: by io_uring, or by
// threads where the system forbids io_uring. Tests put their failures here.
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
  kSync,  // fdatasync: what was written before it is on the disk
};

struct IoRequest {
  IoKind kind = IoKind::kRead;
  int fd = -1;
  uint64_t offset = 0;
  std::byte* data = nullptr;
  uint32_t bytes = 0;
  uint64_t tag = 0;  // comes back with the result
};

struct IoResult {
  uint64_t tag = 0;
  int64_t result = 0;  // bytes, perhaps fewer than asked for; or a negative errno
};

// By one thread at a time.
class FileIo {
 public:
  virtual ~FileIo() = default;  // waits for the end of all requests

  // Hands the requests to the system. The caller keeps at most depth() under way, and leaves their
  // data alone until their results are there. After an error nothing may be started any more.
  virtual absl::Status Start(std::span<const IoRequest> requests) = 0;

  // The results that are there; waits for one if there is none. DEADLINE_EXCEEDED without one.
  virtual absl::StatusOr<std::vector<IoResult>> Wait(const base::Deadline& deadline) = 0;

  // Memory that data will be in for as long as this lives: the kernel may keep it mapped. An error
  // changes nothing but the speed. At most once.
  virtual absl::Status UseBuffers(std::span<const std::span<std::byte>> buffers) = 0;

  virtual uint32_t depth() const = 0;
  // For people: "io_uring", "8 threads, since ...".
  virtual std::string how() const = 0;
};

struct FileIoOptions {
  uint32_t depth = 64;
  bool uring = true;  // false: threads
};

// RESOURCE_EXHAUSTED where the system gives neither a ring nor a thread.
absl::StatusOr<std::unique_ptr<FileIo>> MakeFileIo(const FileIoOptions& options);

// UNAVAILABLE, in words that end a sentence, where there is no io_uring.
absl::StatusOr<std::unique_ptr<FileIo>> MakeUringIo(uint32_t depth);
// `why` not io_uring, for how().
absl::StatusOr<std::unique_ptr<FileIo>> MakeThreadIo(uint32_t depth, std::string why);

}  // namespace geminid::disk

#endif  // GEMINID_CLIENT_DISK_FILE_IO_H_
