#include "client/zero/state/disk_state.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "client/disk/file_io.h"
#include "proto/shm/disk_use.h"

namespace geminid::zero {
namespace {

constexpr uint32_t kDepth = 256;  // for updates; more than a usual granule's blocks
constexpr uint32_t kWindowDepth = 32;

// The first block boundary in memory that may be aligned less.
std::byte* FirstBlock(std::byte* memory) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  return memory + (base::RoundUp(address, disk::kBlockBytes) - address);
}

uint64_t BytesOfStep(const disk::ExtentMap& map, size_t granules) {
  uint64_t bytes = 0;
  for (uint32_t extent = 0; extent < granules; ++extent) bytes += map.bytes(extent);
  return bytes;
}

}  // namespace

struct DiskState::Record {
  uint64_t identity;  // of the files
  // A word for each extent follows.
  std::atomic<uint32_t>* sets() { return reinterpret_cast<std::atomic<uint32_t>*>(this + 1); }
};

DiskState::DiskState(std::vector<DiskShape> extents, const DiskStateOptions& options,
                     disk::StripedFiles files, Record* record)
    : extents_(std::move(extents)),
      options_(options),
      map_(PayloadsOf(extents_)),
      step_bytes_(BytesOfStep(map_, extents_.size() - options.spares)),
      files_(std::move(files)),
      record_(record),
      written_before_(options.written == nullptr ? 0 : options.written->load()),
      sets_(record->sets(), extents_.size()) {
  static_assert(sizeof(Record) == kDiskRecordBytes);
}

absl::StatusOr<std::unique_ptr<DiskState>> DiskState::Create(std::vector<DiskShape> extents,
                                                             const DiskStateOptions& options,
                                                             const std::vector<std::byte*>& memory,
                                                             bool claimed) {
  disk::StripedFilesSpec spec;
  spec.folders = options.disk.folders;
  spec.bytes = disk::ExtentMap(PayloadsOf(extents)).total_bytes();
  spec.limit_bytes = options.disk.limit_bytes;
  if (claimed || options.kept) spec.name = disk::NameOfFiles(options.name);
  // A replacement needs these files, so it waits for the dead process's disk as long as for its
  // own.
  if (claimed) spec.patience = options.timeout;
  // Files of an earlier process of the run are of no use, and take space.
  if (!claimed && !options.kept && !options.name.empty()) {
    disk::RemoveFiles(disk::PathsOfFiles(options.disk.folders, options.name), /*identity=*/{});
  }
  auto* const record = reinterpret_cast<Record*>(memory.front());
  GEMINID_ASSIGN_OR_RETURN(disk::StripedFiles files,
                           claimed ? disk::StripedFiles::Open(spec, record->identity)
                                   : disk::StripedFiles::Create(spec));
  record->identity = files.identity();
  for (size_t extent = 0; !claimed && extent < extents.size(); ++extent) {
    record->sets()[extent].store(0);
  }
  std::unique_ptr<DiskState> made(
      new DiskState(std::move(extents), options, std::move(files), record));
  absl::Status started = made->Start(memory);
  // If no process resumes from this one, the files lose their names and end with this process.
  if (started.ok() ? !options.kept : !claimed) made->Remove();
  if (!started.ok()) return started;
  return made;
}

absl::Status DiskState::Start(const std::vector<std::byte*>& memory) {
  const uint64_t largest = map_.largest();
  window_.extent = {FirstBlock(memory[1]), largest};
  std::vector<std::span<std::byte>> buffers;
  for (size_t place = 0; place < kPlacesAhead; ++place) {
    std::byte* const begin = FirstBlock(memory[2 + place]);
    places_.push_back({.extent = {begin, largest}, .weight = begin + largest});
    buffers.push_back(places_.back().extent);
  }
  GEMINID_ASSIGN_OR_RETURN(std::unique_ptr<disk::FileIo> io, disk::MakeFileIo({.depth = kDepth}));
  GEMINID_ASSIGN_OR_RETURN(std::unique_ptr<disk::FileIo> window_io,
                           disk::MakeFileIo({.depth = kWindowDepth}));
  io->UseBuffers(buffers).IgnoreError();  // how() reports it
  io_ = std::make_unique<disk::ExtentIo>(files_, map_, std::move(io), options_.timeout, &traffic_);
  window_.io = std::make_unique<disk::ExtentIo>(files_, map_, std::move(window_io),
                                                options_.timeout, &traffic_);
  NoteTraffic();
  return absl::OkStatus();
}

StateView DiskState::ViewOf(uint32_t extent, std::span<std::byte> in_memory,
                            std::byte* weight) const {
  const DiskShape& shape = extents_[extent];
  std::byte* at = in_memory.data() + disk::ExtentHeaderBytes(map_.payload_bytes(extent));
  StateView view = {.type = shape.type, .weight = weight, .state_type = shape.state_type};
  if (shape.remainder_bytes() > 0) view.remainder = reinterpret_cast<int16_t*>(at);
  at += shape.remainder_bytes();
  for (size_t i = 0; i < shape.arrays; ++i) {
    view.arrays[i] = at;
    at += shape.array_bytes();
  }
  return view;
}

disk::ExtentKey DiskState::KeyOf(uint32_t granule, uint64_t epoch, uint32_t sets) {
  constexpr int kSetsBits = 24;  // an epoch has 40 bits (proto/shm/commit_layout.h)
  return {.owner = granule,
          .version = epoch << kSetsBits | (sets & ((uint32_t{1} << kSetsBits) - 1))};
}

void DiskState::NoteUpdated(uint32_t extent) {
  sets_[extent].store(kWritten);
  NoteTraffic();
}

void DiskState::NoteTraffic() {
  if (options_.written != nullptr) options_.written->store(written_bytes());
  if (options_.counters == nullptr) return;
  shm::StoreDiskUse({.file_bytes = file_bytes(),
                     .read_bytes = traffic_.read_bytes,
                     .written_bytes = traffic_.written_bytes},
                    options_.counters);
}

DiskState::~DiskState() {
  if (options_.counters != nullptr) {
    shm::StoreDiskUse({.read_bytes = traffic_.read_bytes, .written_bytes = traffic_.written_bytes},
                      options_.counters);
  }
}

// --- the window ----------------------------------------------------------------------------------

absl::Status DiskState::FlushWindow() {
  if (!window_.dirty) return absl::OkStatus();
  const GranuleOnDisk& granule = *window_.holds;
  const uint64_t most = options_.disk.endurance_bytes;
  if (most > 0 && written_bytes() + map_.bytes(granule.extent) > most) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the state that was set cannot be written to disk: ", base::FormatBytes(written_bytes()),
        " of ", base::FormatBytes(most),
        " of StateDisk::endurance_bytes are written; raise endurance_bytes"));
  }
  const uint32_t sets = (sets_[granule.extent].load() & ~kWritten) + 1;
  GEMINID_RETURN_IF_ERROR(window_.io->Finish(window_.io->StartWrite(
      granule.extent, KeyOf(granule.granule, granule.epoch, sets), window_.extent)));
  window_.dirty = false;
  sets_[granule.extent].store((sets & ~kWritten) | kWritten);
  NoteTraffic();
  return absl::OkStatus();
}

absl::Status DiskState::Load(const GranuleOnDisk& granule) {
  if (window_.holds == granule) return absl::OkStatus();
  GEMINID_RETURN_IF_ERROR(FlushWindow());
  window_.holds.reset();
  GEMINID_RETURN_IF_ERROR(window_.io->FinishRead(
      window_.io->StartRead(granule.extent, window_.extent), KeyOf(granule), MayBeBlank(granule)));
  window_.holds = granule;
  return absl::OkStatus();
}

absl::Status DiskState::Use(const GranuleOnDisk& granule, bool writes,
                            const std::function<absl::Status(const StateView&)>& use) {
  const std::lock_guard lock(window_.mutex);
  GEMINID_RETURN_IF_ERROR(Load(granule));
  window_.dirty = window_.dirty || writes;
  return use(ViewOf(granule.extent, window_.extent, granule.weight));
}

absl::Status DiskState::Flush() {
  const std::lock_guard lock(window_.mutex);
  return FlushWindow();
}

// --- what is known -------------------------------------------------------------------------------

// Values that the trainer set are written before the step.
bool DiskState::IsSpent(uint64_t steps) {
  const uint64_t most = options_.disk.endurance_bytes;
  const std::lock_guard lock(window_.mutex);
  const uint64_t set = window_.dirty ? map_.bytes(window_.holds->extent) : 0;
  return most > 0 && written_bytes() + set + steps * step_bytes_ > most;
}

std::string DiskState::how() const { return absl::StrCat(files_.how(), "; ", io_->io().how()); }

}  // namespace geminid::zero
