// State on disk: of each trained granule the remainder and the optimizer's arrays; its weight is in
// host memory. An extent's part on disk has the extent's number, so that the granule's version word
// says where both are (client/zero/state/state_store.h).
//
// An update reads the granule's extent, and writes the spare one. The version word is stored when
// the disk has the spare: whatever instruction the process dies at, the word names an extent that
// is whole. The files are the session's: a session that may have a successor gives them a name, and
// host memory that the successor claims says which files they are. All others have no name, and go
// with the process.
//
// Other readers and writers (checkpoints, values that the trainer sets) go through a window: one
// granule in host memory, which is written back before another one takes its place.
#ifndef GEMINID_CLIENT_ZERO_STATE_DISK_STATE_H_
#define GEMINID_CLIENT_ZERO_STATE_DISK_STATE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/disk/extent_io.h"
#include "client/disk/extent_map.h"
#include "client/disk/striped_files.h"
#include "client/zero/state/disk_shape.h"
#include "client/zero/state/places_ahead.h"
#include "client/zero/state/state_view.h"

namespace geminid::zero {

// A granule's newest state.
struct GranuleOnDisk {
  uint32_t granule = 0;
  uint32_t extent = 0;
  uint64_t epoch = 0;  // that made it
  std::byte* weight = nullptr;
  friend bool operator==(const GranuleOnDisk&, const GranuleOnDisk&) = default;
};

// A granule in host memory. The new weight is not on disk: it waits here until the granule's write
// is complete.
struct DiskPlace {
  std::span<std::byte> extent{};  // header and payload
  std::byte* weight = nullptr;
};

class DiskState {
 public:
  // `extents`: by number. `memory`: as DiskMemoryBytes says, zeros in a new run. `claimed`: the
  // memory is a predecessor's, whose files are opened: NOT_FOUND or DATA_LOSS if they are not there
  // or are not those. Else new files are made, of zeros: errors as of StripedFiles::Create.
  static absl::StatusOr<std::unique_ptr<DiskState>> Create(std::vector<DiskShape> extents,
                                                           const DiskStateOptions& options,
                                                           const std::vector<std::byte*>& memory,
                                                           bool claimed);
  ~DiskState();

  // --- for updates: one thread at a time ---

  const std::vector<DiskPlace>& places() const { return places_; }
  disk::ExtentIo& io() { return *io_; }
  // Of the payload in a place or the window.
  StateView ViewOf(uint32_t extent, std::span<std::byte> in_memory, std::byte* weight) const;
  // What the granule's extent was sealed with.
  disk::ExtentKey KeyOf(const GranuleOnDisk& granule) const {
    return KeyOf(granule.granule, granule.epoch, sets_[granule.extent].load() & ~kWritten);
  }
  // What an update by this step is sealed with, whichever extent it goes to.
  static disk::ExtentKey KeyOfUpdate(uint32_t granule, uint64_t epoch) {
    return KeyOf(granule, epoch, 0);
  }
  // No process of this memory wrote it: it is zeros.
  bool MayBeBlank(const GranuleOnDisk& granule) const {
    return granule.epoch == 0 && sets_[granule.extent].load() == 0;
  }
  // An update has gone to the extent.
  void NoteUpdated(uint32_t extent);

  // --- for all others: any thread, for granules that are not being updated ---

  // While the caller has it, nobody else who asks for it has it: a granule that is used part by
  // part is read once.
  std::unique_lock<std::mutex> Turn() { return std::unique_lock(turn_); }
  // Calls `use` with the granule's state, in the window. `writes`: and takes what it leaves there.
  absl::Status Use(const GranuleOnDisk& granule, bool writes,
                   const std::function<absl::Status(const StateView&)>& use);
  // All that was written so is on disk. To be called before a step is recorded: a successor goes on
  // from there.
  absl::Status Flush();

  // --- what is known ---

  uint64_t file_bytes() const { return files_.file_bytes(); }
  uint64_t read_bytes() const { return traffic_.read_bytes; }
  // With what was written before (DiskStateOptions::written).
  uint64_t written_bytes() const { return written_before_ + traffic_.written_bytes; }
  // With so many more steps more would be written than StateDisk::endurance_bytes.
  bool IsSpent(uint64_t steps = 1) const;
  // For people.
  std::string how() const;
  // The files have no names any more; nobody goes on from them.
  void Remove() const { files_.Remove(); }
  std::vector<std::string> names() const { return files_.names(); }
  uint64_t identity() const { return files_.identity(); }

 private:
  // In the memory that a successor claims.
  struct Record;
  struct Window {
    std::mutex mutex;
    std::span<std::byte> extent{};
    std::optional<GranuleOnDisk> holds{};
    bool dirty = false;
    std::unique_ptr<disk::ExtentIo> io{};
  };

  DiskState(std::vector<DiskShape> extents, const DiskStateOptions& options,
            disk::StripedFiles files, Record* record);
  // Two writes of one epoch are told apart by how often the trainer has set values since.
  static disk::ExtentKey KeyOf(uint32_t granule, uint64_t epoch, uint32_t sets);
  absl::Status Start(const std::vector<std::byte*>& memory);
  absl::Status FlushWindow();
  absl::Status Load(const GranuleOnDisk& granule);
  void NoteTraffic();

  const std::vector<DiskShape> extents_;
  const DiskStateOptions options_;
  const disk::ExtentMap map_;
  const disk::StripedFiles files_;
  Record* const record_;
  const uint64_t written_before_;
  // By extent, beside the record: how often the trainer has set values since the extent's update;
  // with kWritten where it was ever written.
  static constexpr uint32_t kWritten = uint32_t{1} << 31;
  const std::span<std::atomic<uint32_t>> sets_;
  disk::DiskTraffic traffic_;
  std::vector<DiskPlace> places_;
  std::unique_ptr<disk::ExtentIo> io_;  // of updates
  Window window_;
  std::mutex turn_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STATE_DISK_STATE_H_
