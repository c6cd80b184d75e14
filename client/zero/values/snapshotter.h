// Hands out this rank's state as one step left it, while the steps after it go on.
//
// A granule is handed out after its update of that step and before its next update. The snapshot's
// own thread does that, or the updater when it gets to the granule first. So training never waits
// for more than one granule, and no second copy of the state is held.
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
  // `elements` by tensor. The rest outlives it.
  Snapshotter(const Layout& layout, const std::vector<uint64_t>& elements, int rank,
              const ShardValues& values);
  ~Snapshotter();
  Snapshotter(const Snapshotter&) = delete;
  Snapshotter& operator=(const Snapshotter&) = delete;

  // Begins to hand out the state of `epoch`, whose update `updater` is making or has made, chunks
  // in this order. FAILED_PRECONDITION while one is in progress.
  absl::Status Start(uint64_t epoch, std::vector<uint32_t> order, Updater* updater,
                     std::shared_ptr<SnapshotSink> sink);

  // Ends a snapshot in progress unfinished; none can be started any more.
  void Stop();

  // Waits for the end; the first error of the sink or of the update. OK when there was none.
  // DEADLINE_EXCEEDED when nothing was handed out for `timeout`; the snapshot goes on.
  absl::Status Wait(absl::Duration timeout);

  // By the updater, before it makes a granule's version of `epoch`.
  void BeforeUpdate(uint32_t granule, uint64_t epoch);

 private:
  enum class Turn : uint8_t { kPending, kInHand, kDone };

  void Run(const std::vector<uint32_t>& order, Updater* updater);
  void HandOut(uint32_t granule, std::unique_lock<std::mutex>& lock);
  absl::Status Give(uint32_t granule, SnapshotSink* sink);

  const Layout& layout_;
  const ShardValues& values_;
  std::vector<std::vector<ShardPart>> parts_;  // by granule

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Turn> turns_;  // by granule
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
