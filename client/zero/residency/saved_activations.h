// The engine's ActivationStore. Items pass through places at the bottom of the arena on their way
// to host memory and back. An item stays in its places until another item needs them.
#ifndef GEMINID_CLIENT_ZERO_RESIDENCY_SAVED_ACTIVATIONS_H_
#define GEMINID_CLIENT_ZERO_RESIDENCY_SAVED_ACTIVATIONS_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/device/device.h"
#include "client/device/host/inline_stream.h"
#include "client/zero/basics/callback_guard.h"
#include "client/zero/residency/home_ranges.h"
#include "geminid/activation_store.h"
#include "geminid/session.h"
#include "geminid/stream.h"

namespace geminid::zero {

// INVALID_ARGUMENT says what is wrong.
absl::Status CheckActivationStoreOptions(const ActivationStoreOptions& options);

class SavedActivations final : public ActivationStore {
 public:
  // `places`: chunks without a home that are being filled, as from StateStore::MakePlaces.
  // `options` have passed CheckActivationStoreOptions. `session` outlives this object.
  SavedActivations(Session* session, const ActivationStoreOptions& options,
                   const std::vector<ChunkId>& places, absl::Duration timeout);
  // Waits for copies in progress, and frees the host memory.
  ~SavedActivations() override;

  absl::StatusOr<uint64_t> Save(const std::byte* from, uint64_t bytes,
                                StreamHandle stream) override;
  absl::Status Load(uint64_t item, std::byte* to, uint64_t bytes, StreamHandle stream) override;
  absl::Status Drop(uint64_t item) override;
  uint64_t host_bytes() const override { return homes_.bytes(); }
  uint64_t items() const override;

  // The bytes of all places; the bytes that have come back from host memory so far.
  uint64_t place_bytes() const { return places_.size() * options_.place_bytes; }
  uint64_t returned_bytes() const;

  // While a Pause lives, the places are empty, and Save and Load wait.
  class Pause {
   public:
    explicit Pause(SavedActivations* store) : store_(store) {
      if (store_ != nullptr) status_ = store_->Empty();
    }
    ~Pause() {
      if (store_ != nullptr) store_->Resume();
    }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;
    // DEADLINE_EXCEEDED: copies have not ended.
    const absl::Status& status() const { return status_; }

   private:
    SavedActivations* const store_;  // may be null
    absl::Status status_;
  };
  // Each later Save and Load returns `status`.
  void Fail(const absl::Status& status);

 private:
  enum class Where {
    kNowhere,  // the place is empty
    kLeaving,  // being written by the trainer's stream, then copied to host memory
    kHere,     // in the place and in host memory
    kComing,
  };
  struct Place {
    ChunkId chunk = kNoChunk;
    Where where = Where::kNowhere;
    uint64_t item = 0;  // the item, and which of its pieces, the place holds
    uint32_t piece = 0;
    uint32_t readers = 0;  // streams that will read the place; until then it takes nothing else
  };
  struct ActivationPart {
    HomeRanges::Range home{};
    std::optional<uint32_t> place{};
    bool at_home = false;
  };
  struct Item {
    uint64_t bytes = 0;
    std::vector<ActivationPart> pieces{};
    uint32_t calls = 0;  // calls of Save and Load for it that have not returned
    bool dropped = false;
  };
  using Lock = std::unique_lock<std::mutex>;
  using Ready = std::function<bool()>;

  // Called when a stream reaches a point, unless the store has ended.
  using Then = std::function<void(SavedActivations*)>;

  static bool IsInUse(const Place& place) {
    return place.where == Where::kLeaving || place.where == Where::kComing || place.readers > 0;
  }

  absl::StatusOr<Stream*> StreamOf(StreamHandle handle);
  absl::StatusOr<std::vector<ActivationPart>> TakeHomes(uint64_t bytes);
  absl::Status SavePieces(uint64_t item, const std::byte* from, uint64_t bytes, Stream* stream);
  absl::Status LoadPieces(uint64_t item, uint64_t bytes, std::byte* to, Stream* stream);
  absl::StatusOr<uint32_t> HoldPiece(uint64_t item, uint32_t piece);
  void CopyPiece(Stream* stream, std::byte* to, const std::byte* from, uint64_t bytes, Then then);
  // Requests the copy from or to a place; its end sets where the piece is.
  void Copy(uint32_t place, bool to_device);
  void CopyEnded(uint32_t place, bool to_device, const absl::Status& status);
  void EndReading(uint32_t place);
  absl::Status Empty();
  void Resume();

  // --- with mutex_ held ---
  absl::Status Await(Lock* lock, const Ready& ready, const char* what);
  // Waits until no place is in use, despite earlier errors. DEADLINE_EXCEEDED if no copy ends for
  // `timeout`.
  absl::Status AwaitCopies(Lock* lock, absl::Duration timeout);
  // An empty place, or one whose piece is also at home and belongs to an item above `evict_above`.
  std::optional<uint32_t> FindPlace(uint64_t evict_above) const;
  void Assign(uint32_t place, uint64_t item, uint32_t piece, Where where);
  void Clear(Place* place);
  void Prefetch(uint64_t item, uint32_t piece, std::vector<uint32_t>* coming);
  void EndCall(uint64_t item);
  void EraseIfDropped(uint64_t item);
  bool AnyInUse() const;

  Session& session_;
  const ActivationStoreOptions options_;
  const absl::Duration timeout_;
  const std::shared_ptr<CallbackGuard<SavedActivations>> guard_;
  device::InlineStream inline_stream_;
  HomeRanges homes_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Place> places_;       // guarded by mutex_, like the fields below
  std::map<uint64_t, Item> items_;  // by number, in the order of Save
  uint64_t last_item_ = 0;
  uint64_t ended_ = 0;  // ended copies, and ended reads by streams
  uint64_t returned_bytes_ = 0;
  bool paused_ = false;
  absl::Status status_;  // of the first copy that failed
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_RESIDENCY_SAVED_ACTIVATIONS_H_
