// The optimizer step, on its own thread: granule by granule, in the order in which the next forward
// pass needs them, while that forward already runs. Exact: same bits as an update before it. Or in
// the backward pass, in the order in which gradients come.
#ifndef GEMINID_CLIENT_ZERO_UPDATE_UPDATER_H_
#define GEMINID_CLIENT_ZERO_UPDATE_UPDATER_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/zero/basics/layout.h"
#include "client/zero/state/state_store.h"
#include "client/zero/update/granule_optimizer.h"
#include "client/zero/update/updates_ahead.h"

namespace geminid::zero {

class Updater {
 public:
  // `on_chunk_updated` is called on the updater's thread after a chunk's last granule, and once
  // with an error if a step fails; `before_update` there before each granule's new version is made.
  // `ahead` makes those of granules that the store says are fetched ahead; null: there are none.
  // The rest outlives it. RESOURCE_EXHAUSTED where the system gives no thread.
  static absl::StatusOr<std::unique_ptr<Updater>> Create(
      const Layout& layout, const GranuleOptimizer& optimizer, StateStore* store,
      std::unique_ptr<kernels::ThreadPool> pool, std::function<void(absl::Status)> on_chunk_updated,
      std::function<void(uint32_t granule, uint64_t epoch)> before_update,
      std::unique_ptr<UpdatesAhead> ahead = nullptr);
  ~Updater();  // as Stop
  Updater(const Updater&) = delete;
  Updater& operator=(const Updater&) = delete;

  // Begins the step that the optimizer was prepared for, over the trained chunks in `order`. The
  // one before must have ended. `epoch`, of the commit record, marks every granule's new version.
  void Start(uint64_t epoch, const std::vector<uint32_t>& order);

  // In the backward pass: BeginStep says that the step of this epoch begins. Expect says that a
  // chunk will be updated and is not current until then, Add that a granule's gradient is there, in
  // any order. `done` is called on the updater's thread when the gradient is not needed any more;
  // not after Stop or an error.
  void BeginStep(uint64_t epoch);
  void Expect(uint32_t chunk);
  void Add(uint32_t chunk, uint32_t granule, std::function<void()> done);

  // Finishes what was given, and ends the thread. What is given later is left alone.
  void Stop();
  // Before that, where a step ends in its middle: who waits for a chunk is told so.
  void Abandon();

  // The chunk's newest weights are there.
  bool IsCurrent(uint32_t chunk) const;

  // Waits for all that was given. DEADLINE_EXCEEDED when nothing is finished for so long.
  absl::Status WaitIdle(absl::Duration timeout);
  // Waits until the chunk's newest weights are there. DEADLINE_EXCEEDED as of WaitIdle.
  absl::Status WaitCurrent(uint32_t chunk, absl::Duration timeout);

 private:
  struct Item {
    uint32_t chunk = 0;
    uint32_t granule = 0;
    std::function<void()> done{};
    bool coming = false;  // its state has been asked for
  };

  Updater(const Layout& layout, const GranuleOptimizer& optimizer, StateStore* store,
          std::unique_ptr<kernels::ThreadPool> pool,
          std::function<void(absl::Status)> on_chunk_updated,
          std::function<void(uint32_t granule, uint64_t epoch)> before_update,
          std::unique_ptr<UpdatesAhead> ahead);
  void Loop();
  // Until `ready`, or an error.
  absl::Status Await(std::unique_lock<std::mutex>* lock, absl::Duration timeout,
                     const std::function<bool()>& ready);
  absl::Status UpdateGranule(uint32_t granule, uint64_t epoch);
  absl::Status MakeVersion(uint32_t granule, uint64_t epoch);
  bool IsFetched(uint32_t granule) const {
    return ahead_ != nullptr && store_->granule_fetched(granule);
  }
  // With the lock held.
  bool IsMissing(uint32_t chunk) const { return missing_[chunk] > 0; }
  // Of the next granules those whose state can be on its way.
  std::vector<uint32_t> TakeComing();

  const Layout& layout_;
  const GranuleOptimizer& optimizer_;
  StateStore* const store_;
  const std::unique_ptr<kernels::ThreadPool> pool_;
  const struct {
    std::function<void(absl::Status)> on_chunk_updated;
    std::function<void(uint32_t granule, uint64_t epoch)> before_update;
  } calls_;
  const std::unique_ptr<UpdatesAhead> ahead_;  // of the thread

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  uint64_t epoch_ = 0;
  std::deque<Item> queue_;         // its front is being updated
  uint64_t updated_ = 0;           // granules, ever
  std::vector<uint32_t> missing_;  // by chunk: granules without their newest weights
  absl::Status status_;
  std::thread thread_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_UPDATE_UPDATER_H_
