// The optimizer step, on its own thread: granule by granule, in the order in which the next forward
// pass needs them, while that forward already runs. Exact: same bits as an update before it.
#ifndef GEMINID_CLIENT_ZERO_UPDATER_H_
#define GEMINID_CLIENT_ZERO_UPDATER_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/zero/granule_optimizer.h"
#include "client/zero/layout.h"
#include "client/zero/state_store.h"

namespace geminid::zero {

class Updater {
 public:
  // `on_chunk_updated` is called on the updater's thread after a chunk's last granule, and once
  // with an error if a step fails; `before_update` there before each granule's new version is made.
  // The rest outlives it.
  Updater(const Layout& layout, const GranuleOptimizer& optimizer, StateStore* store,
          std::unique_ptr<kernels::ThreadPool> pool,
          std::function<void(absl::Status)> on_chunk_updated,
          std::function<void(uint32_t granule, uint64_t epoch)> before_update);
  ~Updater();  // finishes the step in progress
  Updater(const Updater&) = delete;
  Updater& operator=(const Updater&) = delete;

  // Begins the step that the optimizer was prepared for, over the trained chunks in `order`. The
  // one before must have ended. `epoch`, of the commit record, marks every granule's new version.
  void Start(uint64_t epoch, const std::vector<uint32_t>& order);

  // The chunk's newest weights are there.
  bool IsCurrent(uint32_t chunk) const;

  // Waits for the step in progress. DEADLINE_EXCEEDED when no chunk is finished for so long.
  absl::Status WaitIdle(absl::Duration timeout);
  // Waits until the chunk's newest weights are there.
  absl::Status WaitCurrent(uint32_t chunk);

 private:
  void Loop();
  absl::Status UpdateChunk(uint32_t chunk, uint64_t epoch);

  const Layout& layout_;
  const GranuleOptimizer& optimizer_;
  StateStore* const store_;
  const std::unique_ptr<kernels::ThreadPool> pool_;
  const std::function<void(absl::Status)> on_chunk_updated_;
  const std::function<void(uint32_t granule, uint64_t epoch)> before_update_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  uint64_t epoch_ = 0;
  std::vector<uint32_t> queue_;
  size_t next_ = 0;  // into queue_
  std::vector<bool> current_;
  absl::Status status_;
  std::thread thread_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_UPDATER_H_
