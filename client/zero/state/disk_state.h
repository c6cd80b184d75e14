// State on disk: the remainder and the optimizer's arrays of each trained granule. The weight is in
// host memory. The part on disk has the number of its extent, so the granule's version word refers
// to both (client/zero/state/state_store.h).
//
// An update reads the granule's extent and writes the spare one. The version word changes only when
// the spare is on disk. So the word names a complete extent, at whatever instruction the process
// dies. The files belong to the session. If the session may have a replacement, the files have
// names, and host memory that the replacement claims says which files they are. Other files have no
// names and vanish with the process.
//
// Other readers and writers (checkpoints, values that the trainer sets) use a window: one granule
// in host memory. It is written back before the window takes another granule.
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
  uint64_t epoch = 0;  // of its update
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
  // `extents`: by number. `memory`: as DiskMemoryBytes lists it, zeros in a new run. `claimed`: the
  // memory is from a previous process, whose files are opened; NOT_FOUND or DATA_LOSS if they are
  // missing or are other files. Otherwise makes new files of zeros, with errors as of
  // StripedFiles::Create.
  static absl::StatusOr<std::unique_ptr<DiskState>> Create(std::vector<DiskShape> extents,
                                                           const DiskStateOptions& options,
                                                           const std::vector<std::byte*>& memory,
                                                           bool claimed);
  ~DiskState();

  // --- for updates: one thread at a time ---

  const std::vector<DiskPlace>& places() const { return places_; }
  disk::ExtentIo& io() { return *io_; }
  // A view of the payload in a place or in the window.
  StateView ViewOf(uint32_t extent, std::span<std::byte> in_memory, std::byte* weight) const;
  // The key with which the granule's extent was sealed.
  disk::ExtentKey KeyOf(const GranuleOnDisk& granule) const {
    return KeyOf(granule.granule, granule.epoch, sets_[granule.extent].load() & ~kWritten);
  }
  // The key for an update by this step. It is the same for any extent.
  static disk::ExtentKey KeyOfUpdate(uint32_t granule, uint64_t epoch) {
    return KeyOf(granule, epoch, 0);
  }
  // Whether no process with this memory wrote the extent, so that it is zeros.
  bool MayBeBlank(const GranuleOnDisk& granule) const {
    return granule.epoch == 0 && sets_[granule.extent].load() == 0;
  }
  // Notes that an update was written to the extent.
  void NoteUpdated(uint32_t extent);

  // --- for all others: any thread, for granules that are not being updated ---

  // While a caller holds this lock, no other caller can take it. So a granule that is used part by
  // part is read only once.
  std::unique_lock<std::mutex> LockDisk() { return std::unique_lock(turn_); }
  // Calls `use` with the granule's state in the window. `writes`: stores what `use` changes there.
  absl::Status Use(const GranuleOnDisk& granule, bool writes,
                   const std::function<absl::Status(const StateView&)>& use);
  // Writes all such changes to disk. Call it before a step is recorded, because a replacement
  // process resumes from that step.
  absl::Status Flush();

  // --- what is known ---

  uint64_t file_bytes() const { return files_.file_bytes(); }
  uint64_t read_bytes() const { return traffic_.read_bytes; }
  // Includes the bytes written earlier (DiskStateOptions::written).
  uint64_t written_bytes() const { return written_before_ + traffic_.written_bytes; }
  // Whether this many more steps would write more than StateDisk::endurance_bytes. Each step writes
  // all granules once. Updates in progress are counted when they are complete.
  bool IsSpent(uint64_t steps = 1);
  // For people.
  std::string how() const;
  // Removes the files' names, so that no process resumes from them.
  void Remove() const { files_.Remove(); }
  std::vector<std::string> names() const { return files_.names(); }
  uint64_t identity() const { return files_.identity(); }

 private:
  // In the memory that a replacement process claims.
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
  // `sets` distinguishes two writes of one epoch: it counts how often the trainer has set values
  // since.
  static disk::ExtentKey KeyOf(uint32_t granule, uint64_t epoch, uint32_t sets);
  absl::Status Start(const std::vector<std::byte*>& memory);
  absl::Status FlushWindow();
  absl::Status Load(const GranuleOnDisk& granule);
  void NoteTraffic();

  const std::vector<DiskShape> extents_;
  const DiskStateOptions options_;
  const disk::ExtentMap map_;
  const uint64_t step_bytes_;  // written by a step
  const disk::StripedFiles files_;
  Record* const record_;
  const uint64_t written_before_;
  // By extent, after the record: how often the trainer has set values since the extent's update,
  // plus kWritten if the extent was ever written.
  static constexpr uint32_t kWritten = uint32_t{1} << 31;
  const std::span<std::atomic<uint32_t>> sets_;
  disk::DiskTraffic traffic_;
  std::vector<DiskPlace> places_;
  std::unique_ptr<disk::ExtentIo> io_;  // for updates
  Window window_;
  std::mutex turn_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STATE_DISK_STATE_H_
