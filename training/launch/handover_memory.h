// The memory through which a group of ranks hands its run's state over to the next group, which has
// another number of ranks or runs at another host. The process that starts a host's ranks creates
// the memory. The ranks inherit it, and it outlives all of them.
//
// A record says whether the state is complete. A single store sets this: before it the old group
// owns the state, and after it the new group does. The record also carries the first rank's request
// to go on at another host. The process that starts the ranks answers this request while the ranks
// train.
#ifndef GEMINID_TRAINING_LAUNCH_HANDOVER_MEMORY_H_
#define GEMINID_TRAINING_LAUNCH_HANDOVER_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mapping.h"
#include "base/unique_fd.h"
#include "geminid/rank_info.h"
#include "training/launch/ranks_range.h"

namespace geminid::trainer {

// The variable that holds the number of the descriptor, which a rank inherits.
inline constexpr char kHandoverVariable[] = "GEMINID_HANDOVER_FD";
// The same for the descriptor through which a rank wakes the process that started it.
inline constexpr char kHandoverWakeVariable[] = "GEMINID_HANDOVER_WAKE_FD";

// Bytes of a state, from `offset`.
struct StatePart {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// What is handed over.
struct Handover {
  uint64_t number = 0;   // of this handover in the run, from 1
  uint64_t request = 0;  // the daemon's number for the request; 0: no request, a rank died
  int ranks_before = 0;
  int ranks_after = 0;
  uint64_t step = 0;
  uint64_t bytes = 0;  // of the state
  absl::Time began{};  // on the clock of base::MonotonicNow
  std::string host{};  // where the run goes on; empty: at the same host
  std::string words{};    // the mesh in RunMemory, for a start with as many ranks
  bool followed = false;  // the ranks that began with this state have done a step
  friend bool operator==(const Handover&, const Handover&) = default;
};

// The first rank's request to go on at another host, made before any rank stops.
struct MoveRequest {
  uint64_t request = 0;  // the daemon's number for the request
  std::string host{};    // as the requester names it
  int ranks = 0;
  uint64_t state_bytes = 0;
  uint64_t rank_device_bytes = 0;  // of each rank
  uint64_t host_bytes = 0;         // of all ranks, in the daemon's pools
  std::string data{};              // as from SumOfData; empty: not known
  friend bool operator==(const MoveRequest&, const MoveRequest&) = default;
};

// Each process creates one object, once. Among the ranks, only the first one calls functions that
// change the record.
class HandoverMemory {
 public:
  // Creates memory without state.
  static absl::StatusOr<std::unique_ptr<HandoverMemory>> Create();
  // The memory that this rank inherited from its launcher; null if there is none. Programs that
  // this process executes do not inherit the descriptor.
  static std::unique_ptr<HandoverMemory> From(const collectives::Environment& environment);

  int fd() const { return fd_.get(); }
  // For poll. It becomes readable when a rank changes something that the process which started the
  // rank waits for.
  int wake_fd() const { return wake_.get(); }
  void TakeWake();

  // The handover whose state is complete; nothing: there is none.
  std::optional<Handover> complete() const;
  // The request of a handover that has begun and whose outcome nobody was told; 0: there is none.
  uint64_t untold_request() const;

  // Numbers the handover and allocates pages for handover.bytes of state. Earlier state is lost.
  // RESOURCE_EXHAUSTED if the bytes are more than `available_bytes`, the memory that the system has
  // left: the system would kill processes to find more.
  absl::Status Begin(Handover handover, uint64_t available_bytes);
  // The same of a run over several hosts: only `parts` of the state come here. All hosts take the
  // first one's NextNumber().
  absl::Status BeginParts(const Handover& handover, const std::vector<StatePart>& parts,
                          uint64_t available_bytes);
  uint64_t NextNumber() const;
  // Of the state, as Begin or BeginParts has made room for it here; 0: nothing is here.
  uint64_t mapped_bytes() const;
  uint64_t held_bytes() const;  // of them those with pages
  // All ranks: the state's bytes.
  absl::StatusOr<base::Mapping> Map(uint64_t bytes) const;
  static std::span<std::byte> StateIn(const base::Mapping& mapping);
  void Complete();
  void NoteTold();
  // Frees the memory of state that is not needed any more.
  void Release();

  // By whoever starts the ranks of a host that is not the run's first: the state of that number is
  // whole, over all hosts. What ranks have left here is part of it if it has that number, else it
  // goes. Nothing: a state that was adopted goes; what ranks are leaving now stays.
  void Adopt(const std::optional<Handover>& handover);

  // --- a run that goes to another host ---

  // The first rank calls these three, for one request at a time.
  void Want(const MoveRequest& move);
  void Unwant();
  std::optional<MoveRequest> wanted() const;
  // OK: the host is ready. A later error says why the run did not go on there.
  void Answer(uint64_t request, const absl::Status& status);
  // Nothing: there is no answer yet.
  std::optional<absl::Status> answer(uint64_t request) const;
  // The first rank that began with the state calls this after its first step.
  void NoteFollowed();

  // Allocates memory for state that may come from another host. Errors as of Begin.
  absl::Status Reserve(uint64_t bytes, uint64_t available_bytes);
  // Replaces Begin for a handover that began at another host and was numbered there.
  absl::Status Arrive(const Handover& handover, uint64_t available_bytes);

  // --- a run whose ranks the daemon may change ---

  // The launcher calls this before it starts ranks.
  void SetShare(const RanksRange& range);
  // Nothing: the daemon may not change the number of ranks.
  std::optional<RanksRange> share() const;
  // The seconds per sequence with so many ranks, for later groups of ranks. A new value replaces
  // the last one of the same number. Only the first kNumbersTimed numbers of ranks are stored.
  static constexpr int kNumbersTimed = 32;
  void NoteSequenceSeconds(int ranks, double seconds);
  std::map<int, double> SequenceSeconds() const;

 private:
  struct Record;
  HandoverMemory(base::UniqueFd fd, base::UniqueFd wake, base::Mapping record);
  Record& record() const;
  void Note(const Handover& handover);
  absl::Status MakePages(uint64_t bytes, const std::vector<StatePart>& parts,
                         uint64_t available_bytes);
  void Wake() const;

  base::UniqueFd fd_;
  base::UniqueFd wake_;
  base::Mapping record_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_HANDOVER_MEMORY_H_
