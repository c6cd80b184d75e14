// The moves of one rank on their way: strictly in the order asked for, so that the collectives of
// all ranks meet; copies of gathers further back run ahead. Pure: the mover's thread carries out
// what this says, and tells it what has happened.
//
// An extent:  NONE -> COPYING -> COPIED -> PUBLISHING -> RESIDENT -> LEAVING -> NONE
//
// A move waits for earlier moves alone. A gather waits for the extents that were given up before it
// and lie where it will. Every move waits for those before it in the queue.
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
      kGatherToHost,  // to where the caller keeps chunks that find no room
      kOpen,
      kReduce,
      kDrop,
    };
    Kind kind = Kind::kGather;
    uint32_t chunk = 0;
    uint64_t offset = 0;     // kGather, kOpen
    bool ahead = false;      // nothing waits for it yet
    uint32_t moment = 0;     // that needs it; here and below for the caller alone
    uint64_t operation = 0;  // that it is for
    bool first = true;       // of the step's micro-batches
    bool last = true;
    bool within_host = false;   // of a gather
    std::byte* home = nullptr;  // kGatherToHost: where to
    uint64_t number = 0;        // of the tasks that ranks carry out together, so the same on all
    bool started = false;
  };

  explicit MoveQueue(std::vector<uint64_t> chunk_bytes);

  // --- asking ---

  void Add(Task task);
  // Whether the chunk may leave at once, being settled: then it is LEAVING. Else the drop is
  // queued.
  bool Drop(uint32_t chunk);

  // --- carrying out ---

  // The next gather or opening whose extent may be taken, which it is from now on: COPYING. Later
  // ones wait for earlier ones, so that copies are granted in the order in which they are needed.
  // `current`: the chunk's newest weights are there.
  std::optional<Task> TakeStart(const std::function<bool(uint32_t)>& current);
  // The first task, once it can be carried out without waiting but for other ranks. That is a
  // gather that is COPIED, one of a `current` chunk to the caller's memory, or a reduction or drop
  // of a RESIDENT chunk. A drop is LEAVING from now on. `unused`: no work of the trainer's uses the
  // chunk any more, for reductions. None: always.
  std::optional<Task> TakeFront(const std::function<bool(uint32_t)>& unused = nullptr,
                                const std::function<bool(uint32_t)>& current = nullptr);

  // --- what happened ---

  // So many copies to or from the chunk begin. One has ended: whether it was the last.
  void Copying(uint32_t chunk, uint32_t copies) { extents_[chunk].copies = copies; }
  bool CopyEnded(uint32_t chunk) { return --extents_[chunk].copies == 0; }
  void Copied(uint32_t chunk) { extents_[chunk].stage = Stage::kCopied; }
  void Publishing(uint32_t chunk) { extents_[chunk].stage = Stage::kPublishing; }
  void Published(uint32_t chunk);
  void GatheredToHost(uint32_t chunk) { --extents_[chunk].tasks; }
  // Of a reduction whose bytes are home.
  void Leaving(uint32_t chunk) { extents_[chunk].stage = Stage::kLeaving; }
  void Left(uint32_t chunk);

  // Outside the queue: a settled chunk leaves; one without extent and task gets one, where Clear
  // says so, and is COPYING.
  void Leave(uint32_t chunk);
  void Occupy(uint32_t chunk, uint64_t offset);
  // Outside of any extent: nothing is put in [begin, end) until all of these points are reached.
  void Close(uint64_t begin, uint64_t end, std::set<uint64_t> points) {
    closed_.push_back({begin, end, std::move(points)});
  }
  void Reach(uint64_t point);

  // --- what is where ---

  Stage stage(uint32_t chunk) const { return extents_[chunk].stage; }
  uint64_t offset(uint32_t chunk) const { return extents_[chunk].offset; }
  uint64_t bytes(uint32_t chunk) const { return extents_[chunk].bytes; }
  // Resident, and no move of it is under way.
  bool Settled(uint32_t chunk) const;
  bool NoTask(uint32_t chunk) const { return extents_[chunk].tasks == 0; }
  // Nothing lies, or is still about to be put, in [begin, end).
  bool Clear(uint64_t begin, uint64_t end) const;
  bool IsClosed(uint64_t begin, uint64_t end) const;
  // No task, and nothing on its way out.
  bool Idle() const;
  bool empty() const { return queue_.empty(); }
  const Task& front() const { return queue_.front(); }

 private:
  struct Extent {
    Stage stage = Stage::kNone;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    uint32_t tasks = 0;   // of the chunk, not finished
    uint32_t copies = 0;  // to or from it, under way
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
