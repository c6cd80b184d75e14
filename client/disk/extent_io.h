// Reads and writes whole extents of striped files, each with a header that proves its contents
// (client/disk/extent_header.h). Many operations may be in progress. A finished write is on the
// disk: direct writes have reached the device, other writes were synced.
#ifndef GEMINID_CLIENT_DISK_EXTENT_IO_H_
#define GEMINID_CLIENT_DISK_EXTENT_IO_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
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

// Bytes read from and written to the disk by all ExtentIo that share this. Readable on any thread.
struct DiskTraffic {
  std::atomic<uint64_t> read_bytes = 0;
  std::atomic<uint64_t> written_bytes = 0;
};

// Used by one thread at a time.
class ExtentIo {
 public:
  using Ticket = uint64_t;

  // All but `io` outlive it. `timeout`: DEADLINE_EXCEEDED if the disk does nothing for so long.
  ExtentIo(const StripedFiles& files, const ExtentMap& extents, std::unique_ptr<FileIo> io,
           absl::Duration timeout, DiskTraffic* traffic);
  ~ExtentIo();  // waits for operations in progress
  ExtentIo(const ExtentIo&) = delete;
  ExtentIo& operator=(const ExtentIo&) = delete;

  // Buffers begin at multiples of kBlockBytes, have bytes(extent), and stay until Finish of the
  // ticket. Finish returns all errors.
  Ticket StartRead(size_t extent, std::span<std::byte> buffer);
  // Writes the header for the payload, which is at its place in the buffer. From then on nothing
  // may change the buffer. It may be written as any extent with the same payload size.
  void Seal(size_t extent, const ExtentKey& key, std::span<std::byte> buffer,
            const ForEach& for_each = ForEachInOrder) const;
  Ticket StartSealed(size_t extent, std::span<std::byte> buffer);
  // Seal and StartSealed.
  Ticket StartWrite(size_t extent, const ExtentKey& key, std::span<std::byte> buffer,
                    const ForEach& for_each = ForEachInOrder) {
    Seal(extent, key, buffer, for_each);
    return StartSealed(extent, buffer);
  }

  // Waits for the operation; for a write, until it is on the disk. Once per ticket. Errors name
  // file and byte: RESOURCE_EXHAUSTED for a full disk, DATA_LOSS for bytes that cannot be read.
  absl::Status Finish(Ticket ticket);
  // For a read: waits, and checks that the extent has `key`. `may_be_blank`: an extent that was
  // never written, so has zeros, is accepted.
  absl::Status FinishRead(Ticket ticket, const ExtentKey& key, bool may_be_blank,
                          const ForEach& for_each = ForEachInOrder);

  const FileIo& io() const { return *io_; }

 private:
  struct Operation {
    IoKind kind = IoKind::kRead;
    size_t extent = 0;
    std::span<std::byte> buffer{};
    std::vector<IoRequest> requests{};  // tags: the ticket, and the request's index
    std::vector<uint32_t> files{};      // by request
    std::vector<bool> finished{};       // by request: its last result has come
    size_t missing = 0;                 // requests that are not finished
    absl::Status status{};
  };

  Ticket Add(Operation operation);
  void AddRequest(Ticket ticket, const IoRequest& request, uint32_t file);
  absl::Status FinishWriting(Ticket ticket);
  absl::Status WaitFor(Ticket ticket);
  // Starts as many waiting requests as the depth allows.
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
  base::Deadline progress_;  // deadline for requests that the system postpones
  Ticket next_ = 1;
  std::map<Ticket, Operation> operations_;
  std::deque<std::pair<Ticket, uint32_t>> waiting_;  // requests, by ticket and index
  uint32_t under_way_ = 0;
};

}  // namespace geminid::disk

#endif  // GEMINID_CLIENT_DISK_EXTENT_IO_H_
