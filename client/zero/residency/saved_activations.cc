#include "client/zero/residency/saved_activations.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/status_macros.h"
#include "client/src/session_internal.h"
#include "client/zero/basics/farewell.h"

namespace geminid::zero {
namespace {

constexpr uint32_t kFewestPlaces = 2;  // one is read while the next one arrives
constexpr uint32_t kMostPlaces = 1024;
constexpr uint64_t kPiecesPerChunk = 16;  // in each allocation of host memory
constexpr uint64_t kEvictAny = 0;  // items are numbered from 1

absl::Status NotThere(const char* call, uint64_t item) {
  return absl::InvalidArgumentError(
      absl::StrCat("ActivationStore::", call, ": item ", item, " was dropped, or never saved"));
}

}  // namespace

absl::Status CheckActivationStoreOptions(const ActivationStoreOptions& options) {
  if (options.place_bytes == 0) {
    return absl::InvalidArgumentError("ActivationStoreOptions::place_bytes is 0; use at least 1");
  }
  if (options.places >= kFewestPlaces && options.places <= kMostPlaces) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("ActivationStoreOptions::places is ",
                                                 options.places, ", and must be from ",
                                                 kFewestPlaces, " to ", kMostPlaces));
}

SavedActivations::SavedActivations(Session* session, const ActivationStoreOptions& options,
                                   const std::vector<ChunkId>& places, absl::Duration timeout)
    : session_(*session),
      options_(options),
      timeout_(timeout),
      guard_(std::make_shared<CallbackGuard<SavedActivations>>(this)),
      homes_(session, "activations", kPiecesPerChunk * options.place_bytes) {
  for (const ChunkId chunk : places) places_.push_back({.chunk = chunk});
}

SavedActivations::~SavedActivations() {
  {
    Lock lock(mutex_);
    // After a failure copies may have ended without a call of CopyEnded.
    AwaitCopies(&lock, status_.ok() ? timeout_ : std::min(timeout_, kFarewellTimeout))
        .IgnoreError();
  }
  guard_->End();
}

// --- calls ---------------------------------------------------------------------------------------

absl::StatusOr<uint64_t> SavedActivations::Save(const std::byte* from, uint64_t bytes,
                                                StreamHandle stream) {
  if (bytes == 0) return absl::InvalidArgumentError("ActivationStore::Save of 0 bytes; skip it");
  GEMINID_ASSIGN_OR_RETURN(Stream* const on, StreamOf(stream));
  GEMINID_ASSIGN_OR_RETURN(std::vector<ActivationPart> pieces, TakeHomes(bytes));
  uint64_t item = 0;
  {
    const Lock lock(mutex_);
    item = ++last_item_;
    items_.emplace(item, Item{.bytes = bytes, .pieces = std::move(pieces), .calls = 1});
  }
  absl::Status saved = SavePieces(item, from, bytes, on);
  const Lock lock(mutex_);
  items_.at(item).dropped = !saved.ok();
  EndCall(item);
  if (!saved.ok()) return saved;
  return item;
}

absl::Status SavedActivations::SavePieces(uint64_t item, const std::byte* from, uint64_t bytes,
                                          Stream* stream) {
  for (uint32_t piece = 0; piece * options_.place_bytes < bytes; ++piece) {
    uint32_t place = 0;
    {
      Lock lock(mutex_);
      GEMINID_RETURN_IF_ERROR(Await(
          &lock, [this] { return FindPlace(kEvictAny).has_value(); }, "to make room"));
      place = *FindPlace(kEvictAny);
      Assign(place, item, piece, Where::kLeaving);
    }
    const uint64_t first = piece * options_.place_bytes;
    CopyPiece(stream, session_.Device(places_[place].chunk), from + first,
              std::min(options_.place_bytes, bytes - first),
              [place](SavedActivations* store) { store->Copy(place, /*to_device=*/false); });
  }
  return DeviceOf(session_)->ops().status();
}

absl::Status SavedActivations::Load(uint64_t item, std::byte* to, uint64_t bytes,
                                    StreamHandle stream) {
  GEMINID_ASSIGN_OR_RETURN(Stream* const on, StreamOf(stream));
  {
    const Lock lock(mutex_);
    const auto found = items_.find(item);
    if (found == items_.end() || found->second.dropped) return NotThere("Load", item);
    if (found->second.bytes != bytes) {
      return absl::InvalidArgumentError(absl::StrCat("ActivationStore::Load: item ", item, " has ",
                                                     found->second.bytes, " bytes, and ", bytes,
                                                     " were asked for"));
    }
    ++found->second.calls;
  }
  const absl::Status loaded = LoadPieces(item, bytes, to, on);
  const Lock lock(mutex_);
  EndCall(item);
  return loaded;
}

absl::Status SavedActivations::LoadPieces(uint64_t item, uint64_t bytes, std::byte* to,
                                          Stream* stream) {
  for (uint32_t piece = 0; piece * options_.place_bytes < bytes; ++piece) {
    GEMINID_ASSIGN_OR_RETURN(const uint32_t place, HoldPiece(item, piece));
    const uint64_t first = piece * options_.place_bytes;
    CopyPiece(stream, to + first, session_.Device(places_[place].chunk),
              std::min(options_.place_bytes, bytes - first),
              [place](SavedActivations* store) { store->EndReading(place); });
  }
  return DeviceOf(session_)->ops().status();
}

absl::Status SavedActivations::Drop(uint64_t item) {
  const Lock lock(mutex_);
  const auto found = items_.find(item);
  if (found == items_.end() || found->second.dropped) return NotThere("Drop", item);
  found->second.dropped = true;
  EraseIfDropped(item);
  return absl::OkStatus();
}

uint64_t SavedActivations::items() const {
  const Lock lock(mutex_);
  return static_cast<uint64_t>(
      std::ranges::count_if(items_, [](const auto& item) { return !item.second.dropped; }));
}

uint64_t SavedActivations::returned_bytes() const {
  const Lock lock(mutex_);
  return returned_bytes_;
}

void SavedActivations::Fail(const absl::Status& status) {
  {
    const Lock lock(mutex_);
    status_.Update(status);
  }
  changed_.notify_all();
}

absl::Status SavedActivations::Empty() {
  Lock lock(mutex_);
  paused_ = true;
  GEMINID_RETURN_IF_ERROR(AwaitCopies(&lock, timeout_));
  for (Place& place : places_) Clear(&place);
  return absl::OkStatus();
}

void SavedActivations::Resume() {
  {
    const Lock lock(mutex_);
    paused_ = false;
  }
  changed_.notify_all();
}

// --- pieces of items ----------------------------------------------------------------------------

absl::StatusOr<Stream*> SavedActivations::StreamOf(StreamHandle handle) {
  GEMINID_ASSIGN_OR_RETURN(Stream* const stream, DeviceOf(session_)->StreamOf(handle));
  return stream == nullptr ? &inline_stream_ : stream;
}

absl::StatusOr<std::vector<SavedActivations::ActivationPart>> SavedActivations::TakeHomes(
    uint64_t bytes) {
  GEMINID_ASSIGN_OR_RETURN(const std::vector<HomeRanges::Range> homes,
                           homes_.Take(bytes, options_.place_bytes));
  std::vector<ActivationPart> pieces;
  for (const HomeRanges::Range& home : homes) pieces.push_back({.home = home});
  return pieces;
}

// The piece keeps the place until EndReading.
absl::StatusOr<uint32_t> SavedActivations::HoldPiece(uint64_t item, uint32_t piece) {
  uint32_t place = 0;
  std::vector<uint32_t> coming;
  {
    Lock lock(mutex_);
    const std::optional<uint32_t>& at = items_.at(item).pieces[piece].place;
    GEMINID_RETURN_IF_ERROR(Await(
        &lock, [&] { return !paused_ && (at.has_value() || FindPlace(kEvictAny).has_value()); },
        "to make room"));
    if (!at.has_value()) {
      coming.push_back(*FindPlace(kEvictAny));
      Assign(coming.back(), item, piece, Where::kComing);
    }
    place = *at;
    ++places_[place].readers;
    Prefetch(item, piece, &coming);
  }
  for (const uint32_t to : coming) Copy(to, /*to_device=*/true);
  Lock lock(mutex_);
  absl::Status here = Await(
      &lock, [&] { return places_[place].where == Where::kHere; }, "to come back");
  if (here.ok()) return place;
  --places_[place].readers;
  return here;
}

// Fetches the pieces that are needed next if items are loaded in the reverse order of Save.
void SavedActivations::Prefetch(uint64_t item, uint32_t piece, std::vector<uint32_t>* coming) {
  size_t ahead = 1;  // the piece itself
  const auto bring = [&](uint64_t number, Item* of, uint32_t first) {
    for (uint32_t i = first; i < of->pieces.size(); ++i) {
      if (++ahead > places_.size()) return false;
      if (of->pieces[i].place.has_value() || !of->pieces[i].at_home) continue;
      const std::optional<uint32_t> place = FindPlace(/*evict_above=*/item);
      if (!place.has_value()) return false;
      Assign(*place, number, i, Where::kComing);
      coming->push_back(*place);
    }
    return true;
  };
  const auto loaded = items_.find(item);
  bool more = bring(item, &loaded->second, piece + 1);
  for (auto next = std::make_reverse_iterator(loaded); more && next != items_.rend(); ++next) {
    if (!next->second.dropped) more = bring(next->first, &next->second, 0);
  }
}

void SavedActivations::CopyPiece(Stream* stream, std::byte* to, const std::byte* from,
                                 uint64_t bytes, Then then) {
  DeviceOf(session_)->ops().Copy(*stream, to, from, bytes);
  stream->CallBack([guard = guard_, then = std::move(then)] { guard->Run(then); });
}

// A piece that comes back is needed soon, so its copy is urgent; a piece that leaves can wait.
void SavedActivations::Copy(uint32_t place, bool to_device) {
  TransferSpec spec;
  {
    const Lock lock(mutex_);
    const Place& at = places_[place];
    const Item& item = items_.at(at.item);
    const HomeRanges::Range& home = item.pieces[at.piece].home;
    spec.source = to_device ? home.chunk : at.chunk;
    spec.destination = to_device ? at.chunk : home.chunk;
    (to_device ? spec.source_offset : spec.destination_offset) = home.offset;
    spec.bytes = std::min(options_.place_bytes, item.bytes - at.piece * options_.place_bytes);
  }
  spec.priority = to_device ? Priority::kUrgent : Priority::kNormal;
  spec.cause = to_device ? TransferCause::kPrefetch : TransferCause::kWriteBack;
  session_.Transfer(spec).Then([guard = guard_, place, to_device](const absl::Status& status) {
    guard->Run([&](SavedActivations* store) { store->CopyEnded(place, to_device, status); });
  });
}

void SavedActivations::CopyEnded(uint32_t place, bool to_device, const absl::Status& status) {
  {
    const Lock lock(mutex_);
    Place& at = places_[place];
    Item& item = items_.at(at.item);
    at.where = Where::kHere;
    item.pieces[at.piece].at_home = true;
    if (to_device) {
      returned_bytes_ +=
          std::min(options_.place_bytes, item.bytes - at.piece * options_.place_bytes);
    }
    if (!status.ok() && status_.ok()) {
      status_ = absl::Status(status.code(),
                             absl::StrCat("saved activations could not be copied ",
                                          to_device ? "to the device: " : "to host memory: ",
                                          std::string(status.message())));
    }
    ++ended_;
    EraseIfDropped(at.item);
  }
  changed_.notify_all();
}

void SavedActivations::EndReading(uint32_t place) {
  {
    const Lock lock(mutex_);
    --places_[place].readers;
    ++ended_;
    EraseIfDropped(places_[place].item);
  }
  changed_.notify_all();
}

// --- with mutex_ held ----------------------------------------------------------------------------

// Waits until `ready`, or an error. The time counts as waiting for a copy.
absl::Status SavedActivations::Await(Lock* lock, const Ready& ready, const char* what) {
  if (!status_.ok() || ready()) return status_;
  const absl::Time began = base::MonotonicNow();
  while (status_.ok() && !ready()) {
    const uint64_t before = ended_;
    const auto deadline = base::Deadline::In(timeout_);
    const auto moved = [&] { return ended_ != before || !status_.ok() || ready(); };
    if (changed_.wait_until(*lock, deadline.time(), moved)) continue;
    if (paused_) continue;  // another job has the arena for as long as it needs it
    status_.Update(absl::DeadlineExceededError(
        absl::StrCat("no copy of saved activations has ended within ",
                     absl::FormatDuration(timeout_), ", while the trainer waits for one ", what)));
  }
  session_.AddStall(StallCause::kCopy, base::MonotonicNow() - began);
  return status_;
}

absl::Status SavedActivations::AwaitCopies(Lock* lock, absl::Duration timeout) {
  while (AnyInUse()) {
    const uint64_t before = ended_;
    const auto moved = [&] { return ended_ != before || !AnyInUse(); };
    if (changed_.wait_until(*lock, base::Deadline::In(timeout).time(), moved)) continue;
    return absl::DeadlineExceededError(absl::StrCat(
        "no copy of saved activations has ended within ", absl::FormatDuration(timeout)));
  }
  return absl::OkStatus();
}

// Items are mostly loaded in reverse, so the item in a place that was saved first is needed last.
std::optional<uint32_t> SavedActivations::FindPlace(uint64_t evict_above) const {
  std::optional<uint32_t> found;
  if (paused_) return found;
  const auto later = [this](uint32_t place) {
    return std::pair(places_[place].item, ~places_[place].piece);
  };
  for (uint32_t i = 0; i < places_.size(); ++i) {
    const Place& place = places_[i];
    if (place.where == Where::kNowhere) return i;
    if (place.where != Where::kHere || place.readers > 0 || place.item <= evict_above) continue;
    if (!found.has_value() || later(i) < later(*found)) found = i;
  }
  return found;
}

void SavedActivations::Assign(uint32_t place, uint64_t item, uint32_t piece, Where where) {
  Clear(&places_[place]);
  places_[place].where = where;
  places_[place].item = item;
  places_[place].piece = piece;
  items_.at(item).pieces[piece].place = place;
}

void SavedActivations::Clear(Place* place) {
  if (place->where == Where::kNowhere) return;
  items_.at(place->item).pieces[place->piece].place.reset();
  place->where = Where::kNowhere;
}

void SavedActivations::EndCall(uint64_t item) {
  --items_.at(item).calls;
  EraseIfDropped(item);
}

void SavedActivations::EraseIfDropped(uint64_t item) {
  const auto found = items_.find(item);
  if (found == items_.end() || !found->second.dropped || found->second.calls > 0) return;
  const auto in_use = [this](const ActivationPart& piece) {
    return piece.place.has_value() && IsInUse(places_[*piece.place]);
  };
  if (std::ranges::any_of(found->second.pieces, in_use)) return;
  for (const ActivationPart& piece : found->second.pieces) {
    if (piece.place.has_value()) Clear(&places_[*piece.place]);
    homes_.Give(piece.home);
  }
  items_.erase(found);
  changed_.notify_all();
}

bool SavedActivations::AnyInUse() const { return std::ranges::any_of(places_, IsInUse); }

}  // namespace geminid::zero
