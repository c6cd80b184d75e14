// The memory in which a group of ranks leaves the state of its run for a group of another number of
// ranks, or at another host. Whoever starts the ranks of a host makes it, ranks inherit it, and it
// outlives all of them.
//
// A record says whether the state in it is complete. One store completes it: before, the old group
// has the state, and after, the new one. The record also has the first rank's wish to go on at
// another host, which whoever starts the ranks answers while they train.
#ifndef GEMINID_TRAINING_LAUNCH_HANDOVER_MEMORY_H_
#define GEMINID_TRAINING_LAUNCH_HANDOVER_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mapping.h"
#include "base/unique_fd.h"
#include "geminid/rank_info.h"
#include "training/launch/ranks_range.h"

namespace geminid::trainer {

// Tells a rank the descriptor, which it inherits.
inline constexpr char kHandoverVariable[] = "GEMINID_HANDOVER_FD";
// Likewise; by it a rank wakes whoever started it.
inline constexpr char kHandoverWakeVariable[] = "GEMINID_HANDOVER_WAKE_FD";

// What is handed over.
struct Handover {
  uint64_t number = 0;   // of this handover among those of the run, from 1
  uint64_t request = 0;  // the daemon's number for it; 0: nobody asked, a rank died
  int ranks_before = 0;
  int ranks_after = 0;
  uint64_t step = 0;
  uint64_t bytes = 0;  // of the state
  absl::Time began{};  // as base::MonotonicNow has it
  std::string host{};  // where the run is to go on; empty: where it is
  std::string words{};    // that a start leaves for the next (RunMemory), with as many ranks
  bool followed = false;  // the ranks that begin with it have done a step
  friend bool operator==(const Handover&, const Handover&) = default;
};

// What the first rank wants of another host, before any rank stops.
struct MoveRequest {
  uint64_t request = 0;  // the daemon's number for it
  std::string host{};    // as whoever asks calls it
  int ranks = 0;
  uint64_t state_bytes = 0;
  uint64_t rank_device_bytes = 0;  // of each rank
  uint64_t host_bytes = 0;         // of all ranks, in the daemon's pools
  std::string data{};              // SumOfData; empty: not known
  friend bool operator==(const MoveRequest&, const MoveRequest&) = default;
};

// Each process has one, made once. Of its calls those that change the record are the first rank's.
class HandoverMemory {
 public:
  // Without state.
  static absl::StatusOr<std::unique_ptr<HandoverMemory>> Create();
  // The launcher's, of a rank that has one; else null. The descriptor is not passed on from here.
  static std::unique_ptr<HandoverMemory> From(const collectives::Environment& environment);

  int fd() const { return fd_.get(); }
  // For poll: readable when a rank has changed something that whoever started it waits for.
  int wake_fd() const { return wake_.get(); }
  void TakeWake();

  // The state that is there, whole; nothing: there is none.
  std::optional<Handover> complete() const;
  // The request of a handover that has begun and of which nobody was told what became of it; 0:
  // none.
  uint64_t untold_request() const;

  // Makes room, with pages, for handover.bytes of state; whatever was there is gone. Numbers it.
  // RESOURCE_EXHAUSTED where that is more than `available_bytes`, what the system has left: it
  // would kill processes to make room.
  absl::Status Begin(Handover handover, uint64_t available_bytes);
  // All ranks: the state's bytes.
  absl::StatusOr<base::Mapping> Map(uint64_t bytes) const;
  static std::span<std::byte> StateIn(const base::Mapping& mapping);
  void Complete();
  void NoteTold();
  // The state is needed no more, and its memory goes back to the system.
  void Release();

  // --- a run that goes to another host ---

  // By the first rank. One wish at a time.
  void Want(const MoveRequest& move);
  void Unwant();
  std::optional<MoveRequest> wanted() const;
  // OK: that host is ready. An error also says later why the run did not go on there.
  void Answer(uint64_t request, const absl::Status& status);
  // Nothing: there is none yet.
  std::optional<absl::Status> answer(uint64_t request) const;
  // By the first rank that began with the state, when its first step is done.
  void NoteFollowed();

  // Makes room for state that is to come from another host; it may never come. Errors as of Begin.
  absl::Status Reserve(uint64_t bytes, uint64_t available_bytes);
  // Instead of Begin, of a handover that another host has begun and numbered.
  absl::Status Arrive(const Handover& handover, uint64_t available_bytes);

  // --- a run whose ranks the daemon may change ---

  // By the launcher, before ranks start.
  void SetShare(const RanksRange& range);
  // Nothing: the daemon may not.
  std::optional<RanksRange> share() const;
  // Seconds of a sequence with so many ranks, which later groups of ranks learn. The newest of a
  // number counts; of more than kNumbersTimed numbers the first ones are remembered.
  static constexpr int kNumbersTimed = 32;
  void NoteSequenceSeconds(int ranks, double seconds);
  std::map<int, double> SequenceSeconds() const;

 private:
  struct Record;
  HandoverMemory(base::UniqueFd fd, base::UniqueFd wake, base::Mapping record);
  Record& record() const;
  void Note(const Handover& handover);
  absl::Status MakePages(uint64_t bytes, uint64_t available_bytes);
  void Wake() const;

  base::UniqueFd fd_;
  base::UniqueFd wake_;
  base::Mapping record_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_HANDOVER_MEMORY_H_
