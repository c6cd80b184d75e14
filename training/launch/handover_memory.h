// The memory in which a group of ranks leaves the state of its run for a group of another number of
// ranks. The launcher makes it, ranks inherit it, and it outlives all of them.
//
// A record says whether the state in it is complete. One store completes it: before, the old group
// has the state, and after, the new one.
#ifndef GEMINID_TRAINING_LAUNCH_HANDOVER_MEMORY_H_
#define GEMINID_TRAINING_LAUNCH_HANDOVER_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>

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

// What is handed over.
struct Handover {
  uint64_t number = 0;   // of this handover among those of the run, from 1
  uint64_t request = 0;  // the daemon's number for it; 0: nobody asked, a rank died
  int ranks_before = 0;
  int ranks_after = 0;
  uint64_t step = 0;
  uint64_t bytes = 0;  // of the state
  absl::Time began{};  // as base::MonotonicNow has it
};

// Each process has one, made once. Of its calls those that change the record are the first rank's.
class HandoverMemory {
 public:
  // Without state.
  static absl::StatusOr<std::unique_ptr<HandoverMemory>> Create();
  // The launcher's, of a rank that has one; else null. The descriptor is not passed on from here.
  static std::unique_ptr<HandoverMemory> From(const collectives::Environment& environment);

  int fd() const { return fd_.get(); }

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
  HandoverMemory(base::UniqueFd fd, base::Mapping record);
  Record& record() const;

  base::UniqueFd fd_;
  base::Mapping record_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_HANDOVER_MEMORY_H_
