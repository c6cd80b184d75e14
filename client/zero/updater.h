// The optimizer step, on its own thread: granule by granule, in the order in which the next forward
// pass needs them, while that forward already runs. Exact: same bits as an update before it.
#ifndef GEMINID_CLIENT_ZERO_UPDATER_H_
#define GEMINID_CLIENT_ZERO_UPDATER_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "client/zero/layout.h"
#include "client/zero/state_store.h"
#include "geminid/zero.h"

namespace geminid::zero {

// The scalars of one step.
struct UpdateStep {
  uint64_t epoch = 0;  // of the commit record; marks every granule's new version
  uint64_t step = 1;   // Adam's t
  double learning_rate = 0;
  double gradient_scale = 1;  // clip coefficient
};

class Updater {
 public:
  // `decay[i]`: tensor i is subject to weight decay. `on_chunk_updated` is called on the updater's
  // thread after a chunk's last granule, and once with an error if a step fails.
  Updater(const Layout& layout, std::vector<bool> decay, int rank, const Options& options,
          StateStore* store, std::function<void(absl::Status)> on_chunk_updated);
  ~Updater();  // finishes the step in progress
  Updater(const Updater&) = delete;
  Updater& operator=(const Updater&) = delete;

  // Begins a step over the trained chunks in `order`. The one before must have ended.
  void Start(const UpdateStep& step, const std::vector<uint32_t>& order);

  // The chunk's newest weights are there.
  bool IsCurrent(uint32_t chunk) const;

  // Waits for the step in progress.
  absl::Status WaitIdle();

 private:
  // Consecutive elements of a granule with one weight decay.
  struct Run {
    uint64_t offset = 0;
    uint64_t elements = 0;
    bool decay = false;
  };

  void MakeRuns(const Layout& layout, const std::vector<bool>& decay, int rank);
  void Loop();
  absl::Status UpdateChunk(uint32_t chunk, const UpdateStep& step);
  absl::Status UpdateGranule(uint32_t granule, const UpdateStep& step);

  const Layout& layout_;
  const Options options_;
  StateStore* const store_;
  const std::function<void(absl::Status)> on_chunk_updated_;
  std::vector<std::vector<Run>> runs_;  // by granule

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  UpdateStep step_;
  std::vector<uint32_t> queue_;
  size_t next_ = 0;  // into queue_
  std::vector<bool> current_;
  absl::Status status_;
  std::thread thread_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_UPDATER_H_
