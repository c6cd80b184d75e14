// The optimizer step on a thread of its own: granule by granule in the order of the next forward
// pass, which already runs meanwhile. Results are bit-identical to an update before that pass. Or
// in the backward pass, in the order in which gradients arrive.
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
  // with an error if a step fails; `before_update` before each granule's new version is made.
  // `ahead` updates the granules that the store says are fetched ahead; null: there are none. The
  // other arguments outlive the updater. RESOURCE_EXHAUSTED: the system gives no thread.
  static absl::StatusOr<std::unique_ptr<Updater>> Create(
      const Layout& layout, const GranuleOptimizer& optimizer, StateStore* store,
      std::unique_ptr<kernels::ThreadPool> pool, std::function<void(absl::Status)> on_chunk_updated,
      std::function<void(uint32_t granule, uint64_t epoch)> before_update,
      std::unique_ptr<UpdatesAhead> ahead = nullptr);
  ~Updater();  // as Stop
  Updater(const Updater&) = delete;
  Updater& operator=(const Updater&) = delete;

  // Begins the step that the optimizer was prepared for, over the trained chunks in `order`. The
  // step before must have ended. `epoch`, of the commit record, marks every granule's new version.
  void Start(uint64_t epoch, const std::vector<uint32_t>& order);

  // For updates in the backward pass. BeginStep: the step of this epoch begins. Expect: the chunk
  // is not current until its update. Add: a granule's gradient is there; granules come in any
  // order. `done` is called on the updater's thread when the gradient is no longer needed; never
  // after Stop or an error.
  void BeginStep(uint64_t epoch);
  void Expect(uint32_t chunk);
  void Add(uint32_t chunk, uint32_t granule, std::function<void()> done);

  // Finishes the updates given so far, and ends the thread. Later calls give it no work.
  void Stop();
  // Called before Stop if a step ends in its middle: waits for a chunk then return an error.
  void Abandon();

  // Whether the chunk has its newest weights.
  bool IsCurrent(uint32_t chunk) const;

  // Waits for all updates given so far. DEADLINE_EXCEEDED if no granule finishes for `timeout`.
  absl::Status WaitIdle(absl::Duration timeout);
  // Waits until the chunk has its newest weights. DEADLINE_EXCEEDED as for WaitIdle.
  absl::Status WaitCurrent(uint32_t chunk, absl::Duration timeout);

 private:
  struct Item {
    uint32_t chunk = 0;
    uint32_t granule = 0;
    std::function<void()> done{};
    bool coming = false;  // its state has been requested
  };

  Updater(const Layout& layout, const GranuleOptimizer& optimizer, StateStore* store,
          std::unique_ptr<kernels::ThreadPool> pool,
          std::function<void(absl::Status)> on_chunk_updated,
          std::function<void(uint32_t granule, uint64_t epoch)> before_update,
          std::unique_ptr<UpdatesAhead> ahead);
  void Loop();
  // Waits until `ready` returns true, or an error.
  absl::Status Await(std::unique_lock<std::mutex>* lock, absl::Duration timeout,
                     const std::function<bool()>& ready);
  absl::Status UpdateGranule(uint32_t granule, uint64_t epoch);
  absl::Status MakeVersion(uint32_t granule, uint64_t epoch);
  bool IsFetched(uint32_t granule) const {
    return ahead_ != nullptr && store_->granule_fetched(granule);
  }
  // Needs the lock.
  bool IsMissing(uint32_t chunk) const { return missing_[chunk] > 0; }
  // The next granules whose state can be fetched now.
  std::vector<uint32_t> TakeComing();

  const Layout& layout_;
  const GranuleOptimizer& optimizer_;
  StateStore* const store_;
  const std::unique_ptr<kernels::ThreadPool> pool_;
  const struct {
    std::function<void(absl::Status)> on_chunk_updated;
    std::function<void(uint32_t granule, uint64_t epoch)> before_update;
  } calls_;
  const std::unique_ptr<UpdatesAhead> ahead_;  // used by the updater's thread

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  uint64_t epoch_ = 0;
  std::deque<Item> queue_;         // the front item is being updated
  uint64_t updated_ = 0;           // granules, ever
  std::vector<uint32_t> missing_;  // by chunk: the number of granules without their newest weights
  absl::Status status_;
  std::thread thread_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_UPDATE_UPDATER_H_
