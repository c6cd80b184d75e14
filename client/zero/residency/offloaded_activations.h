// The engine's ActivationStack: places at the bottom of the arena, and host memory for the items
// whose place another item takes.
#ifndef GEMINID_CLIENT_ZERO_RESIDENCY_OFFLOADED_ACTIVATIONS_H_
#define GEMINID_CLIENT_ZERO_RESIDENCY_OFFLOADED_ACTIVATIONS_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/zero/basics/callback_guard.h"
#include "geminid/activation_stack.h"
#include "geminid/session.h"
#include "geminid/stream.h"

namespace geminid::zero {

// INVALID_ARGUMENT says what is wrong.
absl::Status CheckActivationShape(const ActivationShape& shape);
// The bytes of one place.
uint64_t PlaceBytes(const ActivationShape& shape);

class OffloadedActivations final : public ActivationStack {
 public:
  // Allocates host memory for items that leave the device. Usable only after SetPlaces. `shape` has
  // passed CheckActivationShape. `stream`: null if the trainer's work is complete at each call.
  // Both pointers outlive this object. RESOURCE_EXHAUSTED in the daemon's words.
  static absl::StatusOr<std::unique_ptr<OffloadedActivations>> Create(Session* session,
                                                                      ActivationShape shape,
                                                                      Stream* stream,
                                                                      absl::Duration timeout);
  // Chunks without a home that are being filled, as from StateStore::MakePlaces.
  void SetPlaces(std::vector<ChunkId> places) { places_ = std::move(places); }
  // Waits for copies in progress, and frees the host memory.
  ~OffloadedActivations() override;

  absl::Status Begin() override;
  absl::StatusOr<std::byte*> Push() override;
  absl::Status Written(uint32_t item) override;
  absl::StatusOr<std::byte*> Top() override;
  absl::Status Pop() override;

  // The bytes of all places; the bytes that have come back to the device so far.
  uint64_t place_bytes() const { return places_.size() * PlaceBytes(shape_); }
  uint64_t returned_bytes() const { return returned_bytes_.load(std::memory_order_relaxed); }

 private:
  enum class Where {
    kNowhere,  // not pushed, or popped
    kPlace,
    kLeaving,
    kPlaceAndHost,  // until another item is pushed to the place
    kHost,
    kComing,
  };
  struct Item {
    Where where = Where::kNowhere;
    ChunkId home = kNoChunk;
  };
  using Lock = std::unique_lock<std::mutex>;

  OffloadedActivations(Session* session, ActivationShape shape, Stream* stream,
                       absl::Duration timeout);
  absl::Status AllocateHomes();
  uint32_t items() const { return static_cast<uint32_t>(shape_.item_bytes.size()); }
  ChunkId PlaceOf(uint32_t item) const { return places_[item % shape_.places]; }
  bool leaves(uint32_t item) const { return item + shape_.places < items(); }
  // Calls `act` when the work queued on the stream so far has completed.
  void After(std::function<void()> act) const;
  // Requests the copy; its end sets the item's `where`.
  void Copy(uint32_t item, bool to_device);
  void CopyEnded(uint32_t item, bool to_device, const absl::Status& status);
  // Waits until `ready`, or an error. The time counts as waiting for a copy.
  absl::Status Await(Lock* lock, const std::function<bool()>& ready, const char* what);
  bool AnyOnItsWay() const;

  Session& session_;
  const ActivationShape shape_;
  Stream* const stream_;
  const absl::Duration timeout_;
  const std::shared_ptr<CallbackGuard<OffloadedActivations>> guard_;
  std::vector<ChunkId> places_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Item> items_;  // guarded by mutex_, like the fields below
  uint32_t depth_ = 0;       // the number of items on the stack
  uint64_t copies_ended_ = 0;
  std::atomic<uint64_t> returned_bytes_{0};
  absl::Status status_;  // of the first copy that failed
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_RESIDENCY_OFFLOADED_ACTIVATIONS_H_
