// Hands this rank's state after one step to a sink, while later steps run.
//
// A granule is handed out after the snapshot's step has updated it and before the next step does.
// The snapshot's own thread hands it out, or the updater if it reaches the granule first. So
// training waits for at most one granule, and no second copy of the state is needed.
#ifndef GEMINID_CLIENT_ZERO_VALUES_SNAPSHOTTER_H_
#define GEMINID_CLIENT_ZERO_VALUES_SNAPSHOTTER_H_

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/zero/basics/layout.h"
#include "client/zero/state/shard_parts.h"
#include "client/zero/values/shard_values.h"
#include "geminid/zero.h"

namespace geminid::zero {

class Updater;

class Snapshotter {
 public:
  // `elements`: by tensor. The other arguments outlive this object.
  Snapshotter(const Layout& layout, const std::vector<uint64_t>& elements, int rank,
              const ShardValues& values);
  ~Snapshotter();
  Snapshotter(const Snapshotter&) = delete;
  Snapshotter& operator=(const Snapshotter&) = delete;

  // Begins to hand out the state of `epoch`, whose update `updater` is making or has made. Chunks
  // are handed out in `order`. FAILED_PRECONDITION while another snapshot is in progress.
  absl::Status Start(uint64_t epoch, std::vector<uint32_t> order, Updater* updater,
                     std::shared_ptr<SnapshotSink> sink);

  // Ends a snapshot in progress, which stays unfinished. No other can be started after that.
  void Stop();

  // Waits for the end. Returns the first error of the sink or of the update. DEADLINE_EXCEEDED if
  // no granule was handed out for `timeout`; the snapshot continues.
  absl::Status Wait(absl::Duration timeout);

  // The updater calls it before it makes a granule's version of `epoch`.
  void BeforeUpdate(uint32_t granule, uint64_t epoch);

 private:
  enum class SnapshotState : uint8_t { kPending, kInHand, kDone };

  void Run(const std::vector<uint32_t>& order, Updater* updater);
  void HandOut(uint32_t granule, std::unique_lock<std::mutex>& lock);
  absl::Status Give(uint32_t granule, SnapshotSink* sink);

  const Layout& layout_;
  const ShardValues& values_;
  std::vector<std::vector<ShardPart>> parts_;  // by granule

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<SnapshotState> states_;  // by granule
  uint64_t epoch_ = 0;
  uint64_t handed_out_ = 0;  // granules, ever
  bool running_ = false;
  bool stop_ = false;
  std::shared_ptr<SnapshotSink> sink_;
  absl::Status status_;
  std::thread thread_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_VALUES_SNAPSHOTTER_H_
