// Chunks in motion: gathers weights onto the device and takes gradients off it.
//
// A gather copies this rank's shard to its place in the chunk's extent under tickets, then
// all-gathers the chunk in place. A reduction reduce-scatters the gradient in the same storage,
// then copies this rank's shard home and frees the extent. One thread carries both out in the order
// of core/move_queue.h; the daemon's answers and the ends of copies come on the session's thread.
#ifndef GEMINID_CLIENT_ZERO_RESIDENCY_MOVER_H_
#define GEMINID_CLIENT_ZERO_RESIDENCY_MOVER_H_

#include <condition_variable>
#include <cstdint>
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
#include "client/device/device.h"
#include "client/zero/basics/arena_meter.h"
#include "client/zero/basics/callback_guard.h"
#include "client/zero/basics/compute.h"
#include "client/zero/basics/layout.h"
#include "client/zero/core/link_meter.h"
#include "client/zero/core/move_queue.h"
#include "client/zero/core/placer.h"
#include "client/zero/options/engine_setup.h"
#include "client/zero/ranks/chunk_collectives.h"
#include "client/zero/ranks/host_shards.h"
#include "client/zero/ranks/reduced_gradients.h"
#include "client/zero/residency/chunk_views.h"
#include "client/zero/residency/host_buffers.h"
#include "client/zero/residency/stays.h"
#include "client/zero/state/state_store.h"
#include "client/zero/update/updater.h"
#include "geminid/communicator.h"
#include "geminid/session.h"
#include "geminid/zero.h"

namespace geminid::zero {

// What the mover needs to know of the rest of the engine. All outlive it.
struct MoverContext {
  const EngineSetup* setup = nullptr;
  StateStore* store = nullptr;
  collectives::Communicator* communicator = nullptr;  // this thread's own
  // For memory of devices that the host cannot touch; null: it goes through host memory.
  collectives::Communicator* device_communicator = nullptr;
  // Of gathers within the host. The thread's own; null: there are none.
  HostShards* host_shards = nullptr;
  int accumulate = 1;  // micro-batches whose reduced gradients are added up
  int summed = 1;      // micro-batches whose gradients are added up before they are reduced
  ArenaMeter* meter = nullptr;
  const std::vector<uint32_t>* owners = nullptr;  // chunk of the layout, by chunk on the device
  std::function<bool(uint32_t chunk)> weights_current;
  // In the backward pass; null: none then. It has ended (Updater::Stop) before the mover does.
  Updater* updates = nullptr;
  std::function<std::string(uint32_t chunk)> names;  // what it is, in words
};

// How far into the step this is, for reductions.
struct MicroBatchPosition {
  bool first = true;  // of the step's micro-batches
  bool last = true;
};

// What moves are for.
struct Purpose {
  uint64_t operation = 0;  // in this micro-batch, for messages
  uint32_t moment = 0;     // that needs them, unless a step says which
  MicroBatchPosition position{};
};

class Mover {
 public:
  // RESOURCE_EXHAUSTED where the system gives no thread.
  static absl::StatusOr<std::unique_ptr<Mover>> Create(MoverContext context);
  ~Mover();
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  // A moment begins. The daemon is told, when `stream` gets there if there is one.
  void BeginMoment(uint64_t moment, Stream* stream);

  // Asks for what the queue carries out, and carries out the rest. Blocks for those steps that must
  // make room.
  absl::Status Run(const Steps& steps, const Purpose& purpose);

  // --- what operators hold; by the trainer's thread
  // An operator holds the chunk, from now on or from when it comes.
  absl::Status Hold(uint32_t chunk);
  // No operator holds the chunk any more. Its state becomes `rest`.
  void Release(uint32_t chunk, ChunkState rest);

  // --- streams of the trainer
  // Until Synchronize, memory that is released is not used again before everything that is queued
  // on the stream by then is done.
  void Join(Stream* stream);
  // Everything that was queued on these streams is done.
  bool StreamsPassed() const;
  // The point in the stream after what is queued so far; none without a stream.
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
  // From now on this rank's gradients are measured before they are reduced, too.
  void MeasureOwnGradients();
  bool measures_own_gradients() const;
  // Sum of the squares of those of the step's micro-batches so far, over chunks in order.
  double OwnGradientSquares() const;
  // Measures all reduced gradients again: after steps of fewer micro-batches than expected, and
  // after WriteGradient. When idle.
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
  using Landing = ReducedGradients::Landing;

  // `act`, on the stream's thread when what is queued there is complete, unless the mover is
  // ending.
  void After(const ComputePlace& place, std::function<absl::Status()> act);
  // `act`, on the session's thread, unless the mover has ended. Its error is the mover's.
  std::function<void(const absl::Status&)> Later(std::function<void(const absl::Status&)> act =
                                                     [](const absl::Status&) {});

  // mover.cc: asking, waiting, and the queue
  absl::Status RunStep(const Step& step, const Purpose& purpose);
  void Ask(MoveQueue::Task::Kind kind, const Step& step, const Purpose& purpose,
           std::byte* home = nullptr);
  void Drop(uint32_t chunk);
  absl::Status Reserve(uint64_t before, uint64_t bytes);
  absl::Status Await(Lock* lock, const std::function<bool()>& ready, const std::string& what,
                     const std::function<StallCause()>& cause);
  void Loop();
  absl::Status CarryOut(const Task& task);
  StallCause CauseOfWait(uint32_t chunk) const;
  void ReleaseExtent(uint32_t chunk);
  void Changed();

  // mover_stays.cc
  std::set<uint64_t> MarkAll();
  void Reached(uint64_t point);
  void WatchAll(Stays::Requests requests);  // a failure of one is the mover's
  void Arrive(uint32_t chunk);
  void Leave(uint32_t chunk);
  void BecomeReduced(uint32_t chunk);
  void OpenGates();
  void Rest(Lock* lock);

  // mover_copies.cc: one move of bytes between a chunk on the device and chunks in host memory
  struct Copy {
    uint32_t chunk = 0;  // on the device
    bool to_device = false;
    uint64_t begin = 0;       // in that chunk
    uint64_t part_bytes = 0;  // of each ticket
    uint32_t parts = 1;
    bool urgent = false;
    TransferCause cause = TransferCause::kDemand;
    std::optional<uint64_t> extent{};  // that the chunk gets
    uint32_t moment = kNoDeadline;     // that needs it
  };
  Copy CopyOfShard(const Task& task, bool to_device) const;
  TransferSpec TicketOf(const Copy& copy, ChunkId host, uint32_t part) const;
  // By tickets. `done`, on the session's thread, for each part that has arrived.
  void StartCopy(const Copy& copy, const std::function<ChunkId(uint32_t part)>& host,
                 const std::function<void(uint32_t part)>& done);
  absl::Status CopyNow(const Copy& copy, ChunkId host);

  // mover_gathers.cc
  void StartGathers();
  void StartGather(const Task& task);
  void StartCopies(const Task& task);
  void StartLocally(const Task& task);
  void CopyDone(uint32_t chunk, std::optional<uint64_t> counted_bytes);
  absl::Status FinishGather(const Task& task);
  absl::Status GatherToHost(const Task& task);
  ChunkCollectives::Chunk InCollective(const Task& task, std::byte* data) const;
  void Publish(uint32_t chunk);
  void QueueShardTo(uint32_t chunk, std::byte* shard) const;
  absl::Status ToHost(uint32_t chunk);
  absl::Status ToDevice(const Step& step, const Purpose& purpose);
  absl::Status Forget(uint32_t chunk);

  // mover_host_shards.cc
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
  absl::Status MeasureOwn(uint32_t chunk);
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
  void StartLandings();
  void StartLanding(const Landing& landing);
  void Update(const Landing& landed, std::function<void()> used_up);
  bool GranuleLeft(uint32_t chunk);

  Session& session() const { return *context_.setup->session; }
  device::Device& device() const { return *DeviceOf(session()); }
  absl::Duration timeout() const { return context_.setup->options.timeout; }
  // The layout's chunk, of a separate gradient too.
  uint32_t LayoutChunk(uint32_t chunk) const { return (*context_.owners)[chunk]; }
  const ChunkShape& Shape(uint32_t chunk) const {
    return context_.setup->layout.chunks[LayoutChunk(chunk)];
  }
  uint64_t ShardOffset(uint32_t chunk) const;
  std::byte* Extent(uint32_t chunk) const;
  std::byte* Shard(uint32_t chunk) const { return Extent(chunk) + ShardOffset(chunk); }

  const MoverContext context_;
  HostBuffers buffers_;  // of the trainer's thread
  mutable std::mutex mutex_;
  // Signalled when anything has changed that a thread may wait for.
  struct {
    std::condition_variable signal;
    uint64_t count = 0;
  } changes_;
  absl::Status status_;  // CANCELLED once the mover ends
  MoveQueue queue_;
  Stays stays_;
  ReducedGradients gradients_;
  LinkMeter link_;
  bool starting_ = false;  // a thread is in StartGathers
  ChunkViews views_;
  const std::shared_ptr<CallbackGuard<Mover>> guard_;
  const std::unique_ptr<Compute> compute_;
  ChunkCollectives collectives_;  // of the thread
  std::thread thread_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_RESIDENCY_MOVER_H_
