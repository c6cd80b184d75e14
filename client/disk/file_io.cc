#include "client/disk/file_io.h"

namespace geminid::disk {

absl::StatusOr<std::unique_ptr<FileIo>> MakeFileIo(const FileIoOptions& options) {
  if (!options.uring) return MakeThreadIo(options.depth, "io_uring is switched off");
  absl::StatusOr<std::unique_ptr<FileIo>> ring = MakeUringIo(options.depth);
  if (ring.ok()) return ring;
  return MakeThreadIo(options.depth, std::string(ring.status().message()));
}

}  // namespace geminid::disk
