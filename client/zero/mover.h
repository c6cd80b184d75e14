// Chunks in motion: gathers weights onto the device and takes gradients off it.
//
// A gather copies this rank's shard to its place in the chunk's extent under tickets, then
// all-gathers the chunk in place. A reduction reduce-scatters the gradient in the same storage,
// then copies this rank's shard home and frees the extent. One thread carries both out in the order
// of core/move_queue.h; the daemon's answers and the ends of copies come on the session's thread.
#ifndef GEMINID_CLIENT_ZERO_MOVER_H_
#define GEMINID_CLIENT_ZERO_MOVER_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/device/device.h"
#include "client/zero/arena_meter.h"
#include "client/zero/compute.h"
#include "client/zero/core/link_meter.h"
#include "client/zero/core/move_queue.h"
#include "client/zero/core/placer.h"
#include "client/zero/host_buffers.h"
#include "client/zero/host_exchange.h"
#include "client/zero/host_shards.h"
#include "client/zero/layout.h"
#include "client/zero/state_store.h"
#include "client/zero/updater.h"
#include "geminid/communicator.h"
#include "geminid/session.h"
#include "geminid/zero.h"

namespace geminid::zero {

// What the mover needs to know of the rest of the engine. All outlive it.
struct MoverContext {
  Session* session = nullptr;
  device::Device* device = nullptr;  // the session's
  const Layout* layout = nullptr;
  StateStore* store = nullptr;
  collectives::Communicator* communicator = nullptr;  // this thread's own
  // For memory of devices that the host cannot touch; null: it goes through host memory.
  collectives::Communicator* device_communicator = nullptr;
  // Of gathers within the host. The thread's own; null: there are none.
  HostShards* host_shards = nullptr;
  int accumulate = 1;  // micro-batches whose reduced gradients are added up
  int summed = 1;      // micro-batches whose gradients are added up before they are reduced
  ArenaMeter* meter = nullptr;
  // The session's chunk of each layout chunk, then of separate gradients; and whose those are.
  std::vector<ChunkId> gathered;
  std::vector<uint32_t> owners;
  std::vector<uint64_t> views;  // where each is among the device's views; none: there are no views
  std::function<bool(uint32_t chunk)> weights_current;
  // In the backward pass; null: none then. It has ended (Updater::Stop) before the mover does.
  Updater* updates = nullptr;
  std::function<std::string(uint32_t chunk)> names;  // what it is, in words
  std::function<absl::Time()> clock;  // that stalls are measured by, on the waiting thread
  absl::Duration timeout;             // for which nothing may happen while something is waited for
};

// How far into the step this is, for reductions.
struct MicroBatchPosition {
  bool first = true;  // of the step's micro-batches
  bool last = true;
};

class Mover {
 public:
  // RESOURCE_EXHAUSTED where the system gives no thread.
  static absl::StatusOr<std::unique_ptr<Mover>> Create(MoverContext context,
                                                       std::unique_ptr<Compute> compute);
  ~Mover();
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  // An operator begins: what is asked for from now on is for this moment, unless a step says for
  // which. The daemon is told, when `stream` gets there if there is one.
  void BeginMoment(uint64_t moment, Stream* stream);

  // Asks for what the queue carries out, and carries out the rest. `operation`: what it is for, in
  // messages. Blocks for those steps that must make room.
  absl::Status Run(const Steps& steps, uint64_t operation, MicroBatchPosition position);

  // Of the arena's top, for workspace. By the trainer's thread.
  uint64_t reserved_bytes() const { return reserved_bytes_; }
  // Where the chunk is, or will be once it has come.
  uint64_t offset(uint32_t chunk) const { return placed_[chunk]; }

  // --- what operators hold; by the trainer's thread
  // An operator holds the chunk, from now on or from when it comes.
  absl::Status Hold(uint32_t chunk);
  // None does any more. `rest`: the state that it is left in.
  void Release(uint32_t chunk, ChunkState rest);

  // --- streams of the trainer
  // From now until Synchronize, memory that is given away is not used again before what is queued
  // there.
  void Join(Stream* stream);
  // Nothing that was queued there is still to be done.
  bool StreamsPassed() const;
  // What is queued so far ends at this point; none without a stream.
  std::optional<uint64_t> Mark(Stream* stream);
  // Work before the point uses the chunk, which neither leaves nor is reduced before that.
  void NoteUse(uint32_t chunk, std::optional<uint64_t> point);
  // What is queued on `stream` from now on waits until the chunk has come.
  absl::Status WaitOn(Stream* stream, uint32_t chunk);
  // No chunk is put in [begin, end) of the arena before everything queued on the streams so far.
  void CloseUntilStreamsPass(uint64_t begin, uint64_t end);
  // Waits until nothing queued so far uses the chunk.
  absl::Status WaitUnused(uint32_t chunk);
  // Waits for everything queued on the streams so far.
  absl::Status Synchronize();

  // Waits until the chunk can be leased; adds what it waited for to the session's stalls.
  absl::Status WaitResident(uint32_t chunk);
  // Waits until nothing is queued or in motion.
  absl::Status WaitIdle();
  // Waits until nothing lies in [begin, end), which must be on its way to becoming true.
  absl::Status WaitClear(uint64_t begin, uint64_t end);

  // Host memory that nobody needs any more goes back to the daemon. When idle.
  absl::Status FreeSpareBuffers() { return buffers_.FreeSpare(); }

  // Sum of squares of this rank's reduced gradients, over granules in order. Valid when idle after
  // the step's last reductions.
  double GradientSquares() const;
  // The first chunk of which a shard's are not finite.
  std::optional<uint32_t> NotFinite() const;
  void ClearGradientSquares();
  // Measures all gradients as they are kept: for steps of fewer micro-batches than were expected,
  // and after they were written to. When idle.
  absl::Status MeasureGradients();

  // Something the queue may wait for has changed (weights were updated), or failed.
  void Notify(const absl::Status& status);
  // Everything waiting, and every later call, gets this error. The other ranks are not told: the
  // engine aborts the communicators, in words that explain more than a failed copy can.
  void Fail(const absl::Status& status);

  // OK, or what made it fail.
  absl::Status status() const;

  // Of the copies of gathers so far, waiting for tickets included; 0 before any.
  double HostToDeviceBytesPerSecond() const;

 private:
  Mover(MoverContext context, std::unique_ptr<Compute> compute);

  using Task = MoveQueue::Task;
  using Lock = std::unique_lock<std::mutex>;

  // Outlives the mover in callbacks that come late, or never.
  struct Guard {
    std::recursive_mutex mutex;
    Mover* mover = nullptr;  // null: it has ended
  };
  using Requests = std::vector<Pending>;

  // A chunk's time on the device, from one arrival to the drop or reduction that ends it.
  struct Stay {
    bool begun = false;    // operators have held it and not given it back, or will hold it
    bool held = false;     // by an operator
    bool leaving = false;  // when `points` are reached
    ChunkState rest = ChunkState::kHold;
    std::optional<Lease> lease;
    std::set<uint64_t> points;  // in streams whose work uses it
  };
  struct Usage {
    ChunkState told = ChunkState::kFree;
    std::deque<Stay> stays = std::deque<Stay>(1);  // the last is that of operators to come
    uint64_t asked = 0;                            // arrivals
    uint64_t arrived = 0;
  };
  // Opens with the chunk's arrival of that number.
  struct ArrivalGate {
    uint32_t chunk = 0;
    uint64_t arrival = 0;
    std::shared_ptr<device::Gate> gate;
  };
  // The `index`-th granule of a reduced shard, on its way to its update.
  struct Landing {
    uint32_t chunk = 0;
    uint32_t index = 0;
  };
  struct ClosedRange {
    uint64_t block = 0;
    std::set<uint64_t> points;
  };

  // `act`, on the stream's thread when what is queued there is complete, unless the mover is
  // ending.
  void After(const ComputePlace& place, std::function<absl::Status()> act);
  // `act`, on the session's thread, unless the mover has ended. Its error is the mover's.
  std::function<void(const absl::Status&)> Later(std::function<void(const absl::Status&)> act =
                                                     [](const absl::Status&) {});

  // mover.cc: asking, waiting, and the queue
  absl::Status RunStep(const Step& step, uint64_t operation, MicroBatchPosition position);
  void Ask(MoveQueue::Task::Kind kind, const Step& step, uint64_t operation,
           MicroBatchPosition position);
  void Drop(uint32_t chunk);
  absl::Status Reserve(uint64_t bytes);
  absl::Status Await(Lock* lock, const std::function<bool()>& ready, const std::string& what,
                     const std::function<StallCause()>& cause);
  void Loop();
  absl::Status CarryOut(const Task& task);
  StallCause CauseOfWait(uint32_t chunk) const;
  void ReleaseExtent(uint32_t chunk);
  void Changed();

  // A failure of the request is the mover's.
  void Watch(Pending request) { request.Then(Later()); }

  // mover_stays.cc; most with the lock held
  void Reached(uint64_t point);
  void WatchAll(Requests requests);
  void Tell(uint32_t chunk, ChunkState to, Requests* requests);
  void Take(uint32_t chunk, Stay* stay, Requests* requests);
  void GiveBack(uint32_t chunk, Stay* stay, Requests* requests);
  void EndStay(uint32_t chunk);
  void Arrive(uint32_t chunk);
  void Leave(uint32_t chunk);
  void BecomeReduced(uint32_t chunk);
  void OpenGates();
  void Rest(Lock* lock);

  // mover_gathers.cc
  // By which a moment has its copies. Those of iterations with more moments than have numbers come
  // in the order in which they were asked for.
  static uint16_t DeadlineAt(uint32_t moment);
  void StartGathers();
  void StartGather(const Task& task);
  void StartCopies(const Task& task);
  void StartLocally(const Task& task);
  void CopyDone(uint32_t chunk, bool counted, uint64_t bytes);
  absl::Status FinishGather(const Task& task);
  absl::Status GatherToHost(const Task& task);
  void LabelCollective(const Task& task);
  // Ranks that a collective is of.
  struct Group {
    collectives::Communicator* ranks = nullptr;
    collectives::Communicator* device_ranks = nullptr;  // or null
    HostExchange* exchange = nullptr;
  };
  Group GroupOf(const Task& task);
  // What moves memory of the device between the ranks, and where it finds it. Null: nothing can,
  // but by way of the host.
  struct Ranks {
    collectives::Communicator* communicator = nullptr;
    std::byte* data = nullptr;
  };
  absl::StatusOr<Ranks> RanksFor(const Group& group, std::byte* data);
  absl::Status AllGather(const Task& task, std::byte* chunk);
  void Publish(uint32_t chunk);
  absl::Status ShowView(uint32_t chunk);
  absl::Status HideView(uint32_t chunk);
  void KeepViews(bool fill);
  void QueueShardTo(uint32_t chunk, std::byte* shard) const;
  absl::Status ToHost(uint32_t chunk);
  absl::Status ToDevice(const Step& step);
  absl::Status Forget(uint32_t chunk);

  // mover_host_shards.cc
  void StartCopyWithinHost(const Task& task);
  bool FillsHostShard(const Task& task) const {
    return context_.host_shards != nullptr && !task.within_host;
  }
  void PublishWhenKept(const Task& task);
  void KeepInHostShard(uint32_t chunk, const std::byte* gathered);
  void TakeFromHostShard(uint32_t chunk, std::byte* gathered);

  // mover_gradients.cc
  absl::Status RunReduce(const Task& task);
  void LeaveExtent(uint32_t chunk);
  absl::Status AddToSum(const Task& task);
  absl::Status ReduceScatter(const Task& task);
  // Where the g-th granule of a shard is.
  using GranulePlaces = std::function<const std::byte*(uint32_t g)>;
  absl::Status MeasureShard(uint32_t chunk);
  absl::Status MeasureKept(const ChunkShape& shape, bool on_device);
  absl::Status Measure(const ChunkShape& shape, const ComputePlace& place, collectives::DType type,
                       const GranulePlaces& gradients);
  absl::Status KeepGradient(const Task& task, const GranulePlaces& source);
  bool MayReduce(uint32_t chunk) const;
  void StartGradientCopies(const Task& task);
  void GradientCopyDone(const Task& task);

  // mover_updates.cc
  absl::Status StartUpdate(const Task& task);
  absl::Status CheckFinite(uint32_t chunk) const;
  bool IsFiniteLocked(uint32_t chunk) const;
  void StartLandings();
  void Update(const Landing& landed, std::function<void()> used_up);
  void GradientLeft(uint32_t chunk);

  // The layout's chunk, of a separate gradient too.
  uint32_t LayoutChunk(uint32_t chunk) const { return context_.owners[chunk]; }
  const ChunkShape& Shape(uint32_t chunk) const {
    return context_.layout->chunks[LayoutChunk(chunk)];
  }
  uint64_t ShardOffset(uint32_t chunk) const;
  std::byte* Extent(uint32_t chunk) const;
  std::byte* Shard(uint32_t chunk) const { return Extent(chunk) + ShardOffset(chunk); }

  MoverContext context_;
  HostBuffers buffers_;  // of the trainer's thread
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  MoveQueue queue_;
  std::vector<std::byte*> kept_;          // by chunk: where it is gathered to host memory
  std::vector<uint32_t> copies_pending_;  // by chunk
  std::vector<double> squares_;           // by granule
  uint32_t adding_ = 0;                   // gradients that left their extents and are not added yet
  std::deque<Landing> landing_;           // that have no place yet
  std::vector<uint32_t> free_places_;     // of the store's landing places
  uint32_t updating_ = 0;                 // granules reduced in the backward pass, not updated yet
  LinkMeter link_;
  bool starting_ = false;  // a thread is in StartGathers
  uint64_t reserved_bytes_ = 0;
  uint32_t moment_ = 0;           // of the trainer's thread
  std::vector<uint64_t> placed_;  // by chunk, of the trainer's thread
  std::vector<Stream*> streams_;  // of the trainer's thread
  std::vector<Usage> usages_;     // by chunk
  std::mutex views_mutex_;        // the last one taken
  std::vector<bool> shown_;       // by chunk: its view is there
  bool views_kept_ = false;       // none is hidden any more
  std::vector<ArrivalGate> gates_;
  std::vector<ClosedRange> closed_;
  std::set<uint64_t> open_points_;
  uint64_t next_point_ = 0;
  uint64_t changes_ = 0;  // of anything that may be waited for
  absl::Status status_;
  bool stop_ = false;
  const std::shared_ptr<Guard> guard_;
  const std::unique_ptr<Compute> compute_;
  // Of the thread, where the host cannot touch the device's memory.
  HostExchange exchange_;
  std::unique_ptr<HostExchange> exchange_within_host_;  // null: there are no host shards
  std::thread thread_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_MOVER_H_
