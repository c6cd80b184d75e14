// Updates by the device of state that is in host memory. A granule's state and gradient are copied
// slice by slice to places in the arena. Each slice is updated there and copied to the granule's
// spare on the host. With three places one slice arrives, one is updated, and one is copied back.
//
// Before its flip, a granule's update writes only to the spare, and to places whose contents
// nothing reads. A process that dies therefore leaves the same state as in an update by the host.
//
// A gradient whose home is on the host is copied with the state, although the device reduced it: it
// crosses the link twice more than necessary. With UpdateTime::kInBackward the gradient is read
// where it was reduced.
#ifndef GEMINID_CLIENT_ZERO_UPDATE_STREAMED_UPDATES_H_
#define GEMINID_CLIENT_ZERO_UPDATE_STREAMED_UPDATES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/zero/basics/layout.h"
#include "client/zero/state/state_store.h"
#include "client/zero/update/granule_optimizer.h"
#include "client/zero/update/updates_ahead.h"
#include "geminid/pending.h"
#include "geminid/session.h"
#include "kernels/runtime/parallel/thread_pool.h"

namespace geminid::zero {

class StreamedUpdates final : public UpdatesAhead {
 public:
  // Takes places from the arena for the granules that the store says are streamed. All arguments
  // outlive it. `timeout`: of each copy and each update. RESOURCE_EXHAUSTED: no room in the arena.
  static absl::StatusOr<std::unique_ptr<StreamedUpdates>> Create(Session* session,
                                                                 const Layout& layout,
                                                                 StateStore* store,
                                                                 const GranuleOptimizer& optimizer,
                                                                 absl::Duration timeout);
  // Waits for updates in progress, and at most ten seconds for copies in progress.
  ~StreamedUpdates() override;
  StreamedUpdates(const StreamedUpdates&) = delete;
  StreamedUpdates& operator=(const StreamedUpdates&) = delete;

  void Add(uint32_t granule) override;
  // On the host device the pool's threads compute, perhaps even after this call has returned.
  absl::Status FinishFirst(uint64_t epoch, kernels::ThreadPool* pool) override;
  absl::Status WaitUpdates() override;

  uint64_t slice_elements() const { return slice_elements_; }

 private:
  // The arrays of an extent, and one more for the gradient.
  static constexpr size_t kArrays = std::tuple_size_v<StateStore::ExtentChunks> + 1;
  // By array: the bytes of an element; 0: there is no such array.
  using ElementBytes = std::array<uint64_t, kArrays>;

  struct Slice {
    uint32_t granule = 0;
    uint64_t begin = 0;  // in its granule
    uint64_t elements = 0;
    bool last = false;  // of its granule
  };
  // A slice that has a place in the arena.
  struct PlacedSlice {
    Slice slice{};
    ChunkId place = kNoChunk;
    std::vector<Pending> coming{};
    bool updating = false;
  };

  StreamedUpdates(Session* session, const Layout& layout, const StateStore& store,
                  const GranuleOptimizer& optimizer, absl::Duration timeout);
  ElementBytes ElementBytesOf(uint32_t granule) const;
  // Where an array begins in a place. For array kArrays: where the last array ends.
  uint64_t OffsetOf(const ElementBytes& bytes, size_t array) const;
  void FillPlaces();
  std::vector<Pending> StartCopies(const PlacedSlice& placed, bool to_device);
  // Waits for the slice's copies, and queues its update.
  absl::Status StartUpdate(PlacedSlice* placed, kernels::ThreadPool* pool);
  absl::Status FinishFirstSlice(kernels::ThreadPool* pool);
  // Waits for all copies, each for at most `timeout`. Returns the first error.
  static absl::Status WaitAll(std::span<const Pending> copies, absl::Duration timeout);

  Session& session_;
  const StateStore& store_;
  const GranuleOptimizer& optimizer_;
  const absl::Duration timeout_;
  uint64_t slice_elements_ = 0;
  std::vector<uint64_t> granule_elements_;
  std::vector<ChunkId> places_;
  std::deque<Slice> waiting_;  // slices without a place yet
  std::deque<PlacedSlice> placed_;
  uint64_t slices_placed_ = 0;  // ever; slices take the places in turn
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_UPDATE_STREAMED_UPDATES_H_
