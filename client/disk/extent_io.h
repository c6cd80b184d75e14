// Whole extents to and from striped files: each with a header that tells whether it is what was
// written (client/disk/extent_header.h). Many may be under way. A write that has finished is on the
// disk: where the page cache is left out, its device has it, and else it was synced.
#ifndef GEMINID_CLIENT_DISK_EXTENT_IO_H_
#define GEMINID_CLIENT_DISK_EXTENT_IO_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/deadline.h"
#include "client/disk/disk_errors.h"
#include "client/disk/extent_header.h"
#include "client/disk/extent_map.h"
#include "client/disk/file_io.h"
#include "client/disk/striped_files.h"

namespace geminid::disk {

// Bytes that went to and from the disk, of all ExtentIo that count here. Any thread reads them.
struct DiskTraffic {
  std::atomic<uint64_t> read_bytes = 0;
  std::atomic<uint64_t> written_bytes = 0;
};

// By one thread at a time.
class ExtentIo {
 public:
  using Ticket = uint64_t;

  // All but `io` outlive it. `timeout`: DEADLINE_EXCEEDED when the disk does nothing for so long.
  ExtentIo(const StripedFiles& files, const ExtentMap& extents, std::unique_ptr<FileIo> io,
           absl::Duration timeout, DiskTraffic* traffic);
  ~ExtentIo();  // waits for what is under way
  ExtentIo(const ExtentIo&) = delete;
  ExtentIo& operator=(const ExtentIo&) = delete;

  // Buffers begin at multiples of kBlockBytes, have bytes(extent) and stay until the ticket is
  // finished. What goes wrong is said by Finish.
  Ticket StartRead(size_t extent, std::span<std::byte> buffer);
  // Makes the header of the payload that is in its place in the buffer, which nothing may change
  // from then on. The buffer may be written as any extent with as much payload.
  void Seal(size_t extent, const ExtentKey& key, std::span<std::byte> buffer,
            const ForEach& for_each = ForEachInOrder) const;
  Ticket StartSealed(size_t extent, std::span<std::byte> buffer);
  // Both.
  Ticket StartWrite(size_t extent, const ExtentKey& key, std::span<std::byte> buffer,
                    const ForEach& for_each = ForEachInOrder) {
    Seal(extent, key, buffer, for_each);
    return StartSealed(extent, buffer);
  }

  // Waits; of a write, until the disk has it. Each ticket once. Errors name file and byte:
  // RESOURCE_EXHAUSTED for a full disk, DATA_LOSS for what cannot be read.
  absl::Status Finish(Ticket ticket);
  // Of a read: and checks that it is `key`'s. `may_be_blank`: an extent that was never written is
  // zeros.
  absl::Status FinishRead(Ticket ticket, const ExtentKey& key, bool may_be_blank,
                          const ForEach& for_each = ForEachInOrder);

  const FileIo& io() const { return *io_; }

 private:
  struct Operation {
    IoKind kind = IoKind::kRead;
    size_t extent = 0;
    std::span<std::byte> buffer{};
    std::vector<IoRequest> requests{};  // their tags: the ticket, and which one of it
    std::vector<uint32_t> files{};      // of the requests
    std::vector<bool> finished{};       // requests, with their last result
    size_t missing = 0;                 // requests without it
    absl::Status status{};
  };

  Ticket Add(Operation operation);
  void AddRequest(Ticket ticket, const IoRequest& request, uint32_t file);
  absl::Status FinishWriting(Ticket ticket);
  absl::Status WaitFor(Ticket ticket);
  // As many of those that wait as the depth allows.
  absl::Status StartWaiting();
  void Take(const IoResult& result);
  FailedCall Describe(const Operation& operation, size_t request) const;
  ExtentContents ContentsOf(const Operation& operation) const;
  absl::Status InExtent(size_t extent, const absl::Status& status) const;

  const StripedFiles& files_;
  const ExtentMap& extents_;
  const std::unique_ptr<FileIo> io_;
  const absl::Duration timeout_;
  DiskTraffic& traffic_;
  absl::Status broken_;      // for good
  base::Deadline progress_;  // of requests that the system puts off
  Ticket next_ = 1;
  std::map<Ticket, Operation> operations_;
  std::deque<std::pair<Ticket, uint32_t>> waiting_;  // requests, by ticket and which one of it
  uint32_t under_way_ = 0;
};

}  // namespace geminid::disk

#endif  // GEMINID_CLIENT_DISK_EXTENT_IO_H_
