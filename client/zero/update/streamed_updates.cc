#include "client/zero/update/streamed_updates.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "client/zero/basics/crash_points.h"
#include "client/zero/basics/farewell.h"
#include "client/zero/core/extent.h"
#include "client/zero/state/state_placement.h"

namespace geminid::zero {
namespace {

// Alignment of arrays in a place, for the widest loads of GPUs and processors.
constexpr uint64_t kArrayAlignment = 256;

constexpr size_t kGradient = std::tuple_size_v<StateStore::ExtentChunks>;  // after the extent's

}  // namespace

StreamedUpdates::StreamedUpdates(Session* session, const Layout& layout, const StateStore& store,
                                 const GranuleOptimizer& optimizer, absl::Duration timeout)
    : session_(*session),
      store_(store),
      optimizer_(optimizer),
      timeout_(timeout),
      granule_elements_(layout.granules) {
  for (const ChunkShape& chunk : layout.chunks) {
    std::fill_n(granule_elements_.begin() + chunk.first_granule, chunk.granules,
                chunk.granule_elements);
  }
}

absl::StatusOr<std::unique_ptr<StreamedUpdates>> StreamedUpdates::Create(
    Session* session, const Layout& layout, StateStore* store, const GranuleOptimizer& optimizer,
    absl::Duration timeout) {
  std::unique_ptr<StreamedUpdates> made(
      new StreamedUpdates(session, layout, *store, optimizer, timeout));
  uint64_t most_elements = 0;
  uint64_t most_bytes = 1;
  std::vector<ElementBytes> kinds;
  for (uint32_t granule = 0; granule < layout.granules; ++granule) {
    if (!store->granule_streamed(granule)) continue;
    kinds.push_back(made->ElementBytesOf(granule));
    uint64_t bytes = 0;
    for (const uint64_t of_array : kinds.back()) bytes += of_array;
    most_bytes = std::max(most_bytes, bytes);
    most_elements = std::max(most_elements, made->granule_elements_[granule]);
  }
  if (kinds.empty()) return made;  // all parameters are frozen
  made->slice_elements_ = StreamedElements(most_elements, most_bytes, session->arena_bytes());
  uint64_t place_bytes = 0;
  for (const ElementBytes& kind : kinds) {
    place_bytes = std::max(place_bytes, made->OffsetOf(kind, kArrays));
  }
  place_bytes = RoundUpToExtent(place_bytes);
  absl::StatusOr<std::vector<ChunkId>> places =
      store->MakePlaces("place of streamed state", kStreamedPlaces, place_bytes);
  if (!places.ok()) {
    return absl::Status(
        places.status().code(),
        absl::StrCat("the optimizer's state is streamed through ", kStreamedPlaces, " places of ",
                     base::FormatBytes(place_bytes), " in the device arena of ",
                     base::FormatBytes(session->arena_bytes()),
                     "; use more device memory, or the state placement host: ",
                     std::string(places.status().message())));
  }
  made->places_ = *std::move(places);
  return made;
}

StreamedUpdates::~StreamedUpdates() {
  WaitUpdates().IgnoreError();
  // Copies in progress would keep the homes that they read.
  const absl::Duration timeout = std::min(timeout_, kFarewellTimeout);
  for (const PlacedSlice& placed : placed_) WaitAll(placed.coming, timeout).IgnoreError();
}

StreamedUpdates::ElementBytes StreamedUpdates::ElementBytesOf(uint32_t granule) const {
  const StateStore::View view = store_.Current(granule);
  ElementBytes bytes = {SizeOf(view.type), view.remainder == nullptr ? 0 : sizeof(int16_t)};
  for (size_t i = 0; i < kMaxStateArrays; ++i) {
    bytes[2 + i] = view.arrays[i] == nullptr ? 0 : SizeOf(view.state_type);
  }
  const bool comes = store_.GradientChunk(granule) != kNoChunk;
  bytes[kGradient] = comes ? SizeOf(store_.GradientType(granule)) : 0;
  return bytes;
}

uint64_t StreamedUpdates::OffsetOf(const ElementBytes& bytes, size_t array) const {
  uint64_t offset = 0;
  for (size_t i = 0; i < array; ++i) {
    offset += base::RoundUp(slice_elements_ * bytes[i], kArrayAlignment);
  }
  return offset;
}

void StreamedUpdates::Add(uint32_t granule) {
  const uint64_t elements = granule_elements_[granule];
  for (uint64_t begin = 0; begin < elements; begin += slice_elements_) {
    const uint64_t end = std::min(begin + slice_elements_, elements);
    waiting_.push_back({granule, begin, end - begin, /*last=*/end == elements});
  }
  FillPlaces();
}

// Slices leave their places in the order in which they came.
void StreamedUpdates::FillPlaces() {
  while (!waiting_.empty() && placed_.size() < places_.size()) {
    PlacedSlice placed = {.slice = waiting_.front(),
                          .place = places_[slices_placed_ % places_.size()]};
    waiting_.pop_front();
    ++slices_placed_;
    placed.coming = StartCopies(placed, /*to_device=*/true);
    placed_.push_back(std::move(placed));
  }
}

// Called after the flip of the granule before, which decides which extent is the spare.
std::vector<Pending> StreamedUpdates::StartCopies(const PlacedSlice& placed, bool to_device) {
  const Slice& slice = placed.slice;
  const ElementBytes bytes = ElementBytesOf(slice.granule);
  std::array<ChunkId, kArrays> homes = {};
  const StateStore::ExtentChunks extent =
      to_device ? store_.CurrentChunks(slice.granule) : store_.SpareChunks(slice.granule);
  std::ranges::copy(extent, homes.begin());
  homes[kGradient] = to_device ? store_.GradientChunk(slice.granule) : kNoChunk;
  std::vector<Pending> copies;
  for (size_t i = 0; i < kArrays; ++i) {
    if (homes[i] == kNoChunk) continue;
    TransferSpec spec;
    spec.source = to_device ? homes[i] : placed.place;
    spec.destination = to_device ? placed.place : homes[i];
    (to_device ? spec.source_offset : spec.destination_offset) = slice.begin * bytes[i];
    (to_device ? spec.destination_offset : spec.source_offset) = OffsetOf(bytes, i);
    spec.bytes = slice.elements * bytes[i];
    spec.cause = TransferCause::kUpdate;
    copies.push_back(session_.Transfer(spec));
  }
  return copies;
}

absl::Status StreamedUpdates::WaitAll(std::span<const Pending> copies, absl::Duration timeout) {
  absl::Status first;
  for (const Pending& copy : copies) first.Update(copy.Wait(timeout));
  return first;
}

absl::Status StreamedUpdates::StartUpdate(PlacedSlice* placed, kernels::ThreadPool* pool) {
  if (placed->updating) return absl::OkStatus();
  GEMINID_RETURN_IF_ERROR(WaitAll(placed->coming, timeout_));
  placed->updating = true;
  const Slice& slice = placed->slice;
  const ElementBytes bytes = ElementBytesOf(slice.granule);
  std::byte* const place = session_.Device(placed->place);
  const auto at = [&](size_t array) {
    return bytes[array] == 0 ? nullptr : place + OffsetOf(bytes, array);
  };
  GranuleOptimizer::Slice there = {
      .granule = slice.granule, .begin = slice.begin, .elements = slice.elements};
  there.state = store_.Current(slice.granule);  // for its types
  there.state.weight = at(0);
  there.state.remainder = reinterpret_cast<int16_t*>(at(1));
  for (size_t i = 0; i < kMaxStateArrays; ++i) there.state.arrays[i] = at(2 + i);
  const bool came = store_.GradientChunk(slice.granule) != kNoChunk;
  there.gradient = came ? at(kGradient)
                        : store_.Gradient(slice.granule) +
                              slice.begin * SizeOf(store_.GradientType(slice.granule));
  there.gradient_type = store_.GradientType(slice.granule);
  optimizer_.QueueInPlace(there, store_.device_compute(), pool);
  return absl::OkStatus();
}

absl::Status StreamedUpdates::WaitUpdates() {
  const bool any =
      std::ranges::any_of(placed_, [](const PlacedSlice& placed) { return placed.updating; });
  return any ? store_.device_compute().Finish() : absl::OkStatus();
}

// Updates the second slice while the first one is copied back and the third one arrives.
absl::Status StreamedUpdates::FinishFirstSlice(kernels::ThreadPool* pool) {
  GEMINID_RETURN_IF_ERROR(StartUpdate(&placed_.front(), pool));
  GEMINID_RETURN_IF_ERROR(WaitUpdates());
  CrashPoint("slice updated");
  const std::vector<Pending> leaving = StartCopies(placed_.front(), /*to_device=*/false);
  absl::Status status;
  if (placed_.size() > 1) status = StartUpdate(&placed_[1], pool);
  status.Update(WaitAll(leaving, timeout_));
  placed_.pop_front();
  if (status.ok()) FillPlaces();
  return status;
}

absl::Status StreamedUpdates::FinishFirst(uint64_t /*epoch*/, kernels::ThreadPool* pool) {
  bool last = false;
  while (!last) {
    last = placed_.front().slice.last;
    GEMINID_RETURN_IF_ERROR(FinishFirstSlice(pool));
  }
  return absl::OkStatus();
}

}  // namespace geminid::zero
