// The moves of one rank that are in progress. They run strictly in the order of the requests, so
// that the collectives of all ranks match; copies for later gathers run ahead. Pure: the mover's
// thread executes the tasks that this queue returns, and reports what has happened.
//
// An extent:  NONE -> COPYING -> COPIED -> PUBLISHING -> RESIDENT -> LEAVING -> NONE
//
// A move waits only for earlier moves. A gather waits until the extents in its place that were
// given up before it have left. Every move waits for those before it in the queue.
#ifndef GEMINID_CLIENT_ZERO_CORE_MOVE_QUEUE_H_
#define GEMINID_CLIENT_ZERO_CORE_MOVE_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace geminid::zero {

class MoveQueue {
 public:
  enum class Stage { kNone, kCopying, kCopied, kPublishing, kResident, kLeaving };

  struct Task {
    enum class Kind {
      kGather,        // to the device
      kGatherToHost,  // to host memory of the caller's, for chunks that find no room
      kOpen,
      kReduce,
      kDrop,
    };
    Kind kind = Kind::kGather;
    uint32_t chunk = 0;
    uint64_t offset = 0;     // kGather, kOpen
    bool ahead = false;      // nothing waits for it yet
    uint32_t moment = 0;     // that needs it; for the caller alone, like all fields below
    uint64_t operation = 0;  // that it is for
    bool first = true;       // among the step's micro-batches
    bool last = true;
    bool within_host = false;   // of a gather
    std::byte* home = nullptr;  // kGatherToHost: destination
    uint64_t number = 0;        // among the tasks that all ranks execute together; the same on all
    bool started = false;
  };

  explicit MoveQueue(std::vector<uint64_t> chunk_bytes);

  // --- requests ---

  void Add(Task task);
  // True if the chunk is settled: it is LEAVING from now on, and may leave at once. False: the drop
  // is queued.
  bool Drop(uint32_t chunk);

  // --- execution ---

  // Returns the next gather or opening whose extent is free, and takes the extent: COPYING. Later
  // ones wait for earlier ones, so that copies are granted in the order in which they are needed.
  // `current`: whether the chunk has its newest weights.
  std::optional<Task> TakeStart(const std::function<bool(uint32_t)>& current);
  // Returns the first task once nothing but other ranks can delay it. That is a gather that is
  // COPIED, a gather of a `current` chunk to host memory, or a reduction or drop of a RESIDENT
  // chunk. A drop is LEAVING from now on. `unused`, for reductions: no queued work of the trainer
  // uses the chunk. A null function counts as always true.
  std::optional<Task> TakeFront(const std::function<bool(uint32_t)>& unused = nullptr,
                                const std::function<bool(uint32_t)>& current = nullptr);

  // --- events ---

  // Copying: so many copies to or from the chunk begin. CopyEnded: one has ended; true: the last.
  void Copying(uint32_t chunk, uint32_t copies) { extents_[chunk].copies = copies; }
  bool CopyEnded(uint32_t chunk) { return --extents_[chunk].copies == 0; }
  void Copied(uint32_t chunk) { extents_[chunk].stage = Stage::kCopied; }
  void Publishing(uint32_t chunk) { extents_[chunk].stage = Stage::kPublishing; }
  void Published(uint32_t chunk);
  void GatheredToHost(uint32_t chunk) { --extents_[chunk].tasks; }
  // After a reduction whose bytes have arrived at home.
  void Leaving(uint32_t chunk) { extents_[chunk].stage = Stage::kLeaving; }
  void Left(uint32_t chunk);

  // Outside the queue. Leave: a settled chunk is LEAVING. Occupy: a chunk without extent and task
  // gets an extent, for which Clear must be true, and is COPYING.
  void Leave(uint32_t chunk);
  void Occupy(uint32_t chunk, uint64_t offset);
  // Independent of extents: nothing is placed in [begin, end) until all points are reached.
  void Close(uint64_t begin, uint64_t end, std::set<uint64_t> points) {
    closed_.push_back({begin, end, std::move(points)});
  }
  void Reach(uint64_t point);

  // --- where chunks are ---

  Stage stage(uint32_t chunk) const { return extents_[chunk].stage; }
  uint64_t offset(uint32_t chunk) const { return extents_[chunk].offset; }
  uint64_t bytes(uint32_t chunk) const { return extents_[chunk].bytes; }
  // Resident, and no move of the chunk is in progress.
  bool Settled(uint32_t chunk) const;
  bool NoTask(uint32_t chunk) const { return extents_[chunk].tasks == 0; }
  // Nothing lies in [begin, end) or will be placed there by a queued task.
  bool Clear(uint64_t begin, uint64_t end) const;
  bool IsClosed(uint64_t begin, uint64_t end) const;
  // No task is left, and nothing is leaving.
  bool Idle() const;
  bool empty() const { return queue_.empty(); }
  const Task& front() const { return queue_.front(); }

 private:
  struct Extent {
    Stage stage = Stage::kNone;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    uint32_t tasks = 0;   // unfinished tasks of the chunk
    uint32_t copies = 0;  // to or from it, in progress
  };

  static bool TakesExtent(const Task& task) {
    return task.kind == Task::Kind::kGather || task.kind == Task::Kind::kOpen;
  }
  bool NothingLiesIn(uint64_t begin, uint64_t end) const;

  struct ClosedRange {
    uint64_t begin = 0;
    uint64_t end = 0;
    std::set<uint64_t> points;
  };

  std::vector<Extent> extents_;
  std::vector<ClosedRange> closed_;
  std::deque<Task> queue_;
  uint64_t next_number_ = 0;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_MOVE_QUEUE_H_
