// Moves chunks: gathers weights onto the device and takes gradients off it.
//
// A gather copies this rank's shard under tickets to its place in the chunk's extent, then
// all-gathers the chunk in place. A reduction reduce-scatters the gradient in the same storage,
// then copies this rank's shard home and frees the extent. One thread executes both in the order of
// core/move_queue.h. The session's thread reports answers of the daemon and ends of copies.
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
#include "client/zero/residency/operator_leases.h"
#include "client/zero/state/state_store.h"
#include "client/zero/update/updater.h"
#include "geminid/communicator.h"
#include "geminid/session.h"
#include "geminid/zero.h"

namespace geminid::zero {

// The parts of the engine that the mover uses. All outlive it.
struct MoverContext {
  const EngineSetup* setup = nullptr;
  StateStore* store = nullptr;
  collectives::Communicator* communicator = nullptr;  // used by the mover's thread alone
  // For device memory that the host cannot touch; null: collectives go by way of host memory.
  collectives::Communicator* device_communicator = nullptr;
  // For gathers within the host. Used by the mover's thread alone; null: there are none.
  HostShards* host_shards = nullptr;
  int accumulate = 1;  // micro-batches whose reduced gradients are added up
  int summed = 1;      // micro-batches whose gradients are added up before they are reduced
  ArenaMeter* meter = nullptr;
  const std::vector<uint32_t>* owners = nullptr;  // by chunk on the device: the chunk of the layout
  std::function<bool(uint32_t chunk)> weights_current;
  // Updates in the backward pass; null: none. Updater::Stop is called before the mover ends.
  Updater* updates = nullptr;
  std::function<std::string(uint32_t chunk)> names;  // names of chunks, for people
};

// The position of a reduction's micro-batch in its step.
struct MicroBatchPosition {
  bool first = true;  // of the step's micro-batches
  bool last = true;
};

// What moves are for.
struct Purpose {
  uint64_t operation = 0;  // in this micro-batch, for messages
  uint32_t moment = 0;     // that needs the moves, unless a step names another
  MicroBatchPosition position{};
};

class Mover {
 public:
  // RESOURCE_EXHAUSTED: the system gives no thread.
  static absl::StatusOr<std::unique_ptr<Mover>> Create(MoverContext context);
  ~Mover();
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  // A moment begins. Tells the daemon; with a stream, only when the stream reaches this point.
  void BeginMoment(uint64_t moment, Stream* stream);

  // Queues the steps that the queue executes, and executes the others. Blocks for the steps that
  // must make room.
  absl::Status Run(const Steps& steps, const Purpose& purpose);

  // --- chunks that operators hold; for the trainer's thread
  // An operator holds the chunk, from now on or from its arrival.
  absl::Status Hold(uint32_t chunk);
  // No operator holds the chunk any more. Its state becomes `rest`.
  void Release(uint32_t chunk, ChunkState rest);

  // --- streams of the trainer
  // Until Synchronize, memory that is released is not reused before the work that is queued on the
  // stream by then has completed.
  void Join(Stream* stream);
  // Whether all work that was queued on these streams has completed.
  bool StreamsPassed() const;
  // The point in the stream after the work queued so far; nullopt without a stream.
  std::optional<uint64_t> Mark(Stream* stream);
  // Work before the point uses the chunk: until then it neither leaves nor is reduced.
  void NoteUse(uint32_t chunk, std::optional<uint64_t> point);
  // Work that is queued on `stream` from now on waits for the chunk's arrival.
  absl::Status WaitOn(Stream* stream, uint32_t chunk);
  // No chunk is placed in [begin, end) of the arena before the work queued so far has completed.
  void CloseUntilStreamsPass(uint64_t begin, uint64_t end);
  // Waits until no work queued so far uses the chunk.
  absl::Status WaitUnused(uint32_t chunk);
  // Waits for all work queued on the streams so far.
  absl::Status Synchronize();

  // Waits until the chunk can be leased. Adds the wait to the session's stalls.
  absl::Status WaitResident(uint32_t chunk);
  // Waits until no move is queued or in progress.
  absl::Status WaitIdle();
  // Waits until nothing lies in [begin, end). The moves that clear it must be queued.
  absl::Status WaitClear(uint64_t begin, uint64_t end);

  // Takes host memory for all of these chunks before they make room. False: there is not enough,
  // and none is taken. Blocks for calls to the daemon.
  absl::StatusOr<bool> TakeBuffers(std::span<const uint32_t> chunks);
  // Frees host memory that no chunk needs any more. Only when idle.
  absl::Status FreeSpareBuffers() { return buffers_.FreeSpare(); }
  // Host memory that the mover has allocated and does not free itself.
  std::vector<ChunkId> buffers() const { return buffers_.All(); }

  // The sum of squares of this rank's reduced gradients, over granules in order. Valid when idle
  // after the step's last reductions.
  double GradientSquares() const;
  // The first chunk with a gradient in this rank's shard that is not finite.
  std::optional<uint32_t> NotFinite() const;
  void ClearGradientSquares();
  // From now on this rank's gradients are measured before they are reduced, too.
  void MeasureOwnGradients();
  bool measures_own_gradients() const;
  // The sum of squares of this step's own gradients so far, over chunks in order.
  double OwnGradientSquares() const;
  // Measures all reduced gradients again, after steps of fewer micro-batches than expected and
  // after WriteGradient. Only when idle.
  absl::Status MeasureGradients();

  // Something that the queue may wait for has changed (weights were updated), or failed.
  void Notify(const absl::Status& status);
  // All waiting and all later calls get this error. The other ranks are not told here: the engine
  // aborts the communicators, with a message that explains more than that of a failed copy.
  void Fail(const absl::Status& status);

  // OK, or the error that made the mover fail.
  absl::Status status() const;

  // The speed of gathers' copies so far, including waits for tickets; 0 before the first copy.
  double HostToDeviceBytesPerSecond() const;

 private:
  Mover(MoverContext context, std::unique_ptr<Compute> compute);

  using Task = MoveQueue::Task;
  using Lock = std::unique_lock<std::mutex>;
  using GradientLanding = ReducedGradients::GradientLanding;

  // Calls `act` on the stream's thread when the work queued there has completed, unless the mover
  // is ending.
  void After(const ComputePlace& place, std::function<absl::Status()> act);
  // A callback that runs `act` on the session's thread while the mover lives. Errors fail it.
  std::function<void(const absl::Status&)> Later(std::function<void(const absl::Status&)> act =
                                                     [](const absl::Status&) {});

  // mover.cc: requests, waits, and the queue
  absl::Status RunStep(const Step& step, const Purpose& purpose);
  void Ask(MoveQueue::Task::Kind kind, const Step& step, const Purpose& purpose,
           std::byte* home = nullptr);
  void Drop(uint32_t chunk);
  absl::Status Reserve(uint64_t before, uint64_t bytes);
  absl::Status Await(Lock* lock, const std::function<bool()>& ready, const std::string& what,
                     const std::function<StallCause()>& cause);
  std::string StandstillAdvice() const;
  void Loop();
  absl::Status CarryOut(const Task& task);
  StallCause CauseOfWait(uint32_t chunk) const;
  void ReleaseExtent(uint32_t chunk);
  void Changed();

  // mover_leases.cc
  std::set<uint64_t> MarkAll();
  void Reached(uint64_t point);
  void WatchAll(OperatorLeases::Requests requests);  // if a request fails, so does the mover
  void Arrive(uint32_t chunk);
  void Leave(uint32_t chunk);
  void BecomeReduced(uint32_t chunk);
  void OpenGates();
  void Rest(Lock* lock);

  // mover_copies.cc: one move of bytes between a chunk on the device and chunks in host memory
  struct Copy {
    uint32_t chunk = 0;  // on the device
    bool to_device = false;
    uint64_t begin = 0;       // in the chunk on the device
    uint64_t part_bytes = 0;  // of each ticket
    uint32_t parts = 1;
    bool urgent = false;
    TransferCause cause = TransferCause::kDemand;
    std::optional<uint64_t> extent{};  // the extent that the chunk gets
    uint32_t moment = kNoDeadline;     // that needs the copy
  };
  Copy CopyOfShard(const Task& task, bool to_device) const;
  TransferSpec TicketOf(const Copy& copy, ChunkId host, uint32_t part) const;
  // Copies under tickets. Calls `done` on the session's thread for each part that has arrived.
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
  // Returns the address of the g-th granule of a shard.
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
  void StartLanding(const GradientLanding& landing);
  void Update(const GradientLanding& landed, std::function<void()> used_up);
  bool GranuleLeft(uint32_t chunk);

  Session& session() const { return *context_.setup->session; }
  device::Device& device() const { return *DeviceOf(session()); }
  absl::Duration timeout() const { return context_.setup->options.timeout; }
  // The chunk of the layout; for a separate gradient, that of its weights.
  uint32_t LayoutChunk(uint32_t chunk) const { return (*context_.owners)[chunk]; }
  const ChunkShape& Shape(uint32_t chunk) const {
    return context_.setup->layout.chunks[LayoutChunk(chunk)];
  }
  uint64_t ShardOffset(uint32_t chunk) const;
  std::byte* Extent(uint32_t chunk) const;
  std::byte* Shard(uint32_t chunk) const { return Extent(chunk) + ShardOffset(chunk); }

  const MoverContext context_;
  HostBuffers buffers_;  // used by the trainer's thread
  mutable std::mutex mutex_;
  // Signalled when anything has changed that a thread may wait for.
  struct {
    std::condition_variable signal;
    uint64_t count = 0;
  } changes_;
  absl::Status status_;  // CANCELLED once the mover ends
  MoveQueue queue_;
  OperatorLeases leases_;
  ReducedGradients gradients_;
  LinkMeter link_;
  bool starting_ = false;  // a thread is in StartGathers
  ChunkViews views_;
  const std::shared_ptr<CallbackGuard<Mover>> guard_;
  const std::unique_ptr<Compute> compute_;
  ChunkCollectives collectives_;  // used by the mover's thread
  std::thread thread_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_RESIDENCY_MOVER_H_
