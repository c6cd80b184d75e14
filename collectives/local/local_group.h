// The shared part of a local group's threads: a meeting point and mailboxes.
#ifndef GEMINID_COLLECTIVES_LOCAL_LOCAL_GROUP_H_
#define GEMINID_COLLECTIVES_LOCAL_LOCAL_GROUP_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/operation.h"

namespace geminid::collectives {

// All methods may be called on any thread. A wait ends with the first failure of the group, and
// returns it.
class LocalGroup {
 public:
  explicit LocalGroup(int world_size);

  // The buffers that a rank lets the others read; valid between Meet and Part.
  struct Offer {
    Operation operation;
    const std::byte* in = nullptr;
    const std::byte* out = nullptr;
  };
  void Post(int rank, const Offer& offer);
  // Returns when all ranks have called it as often as this rank. All earlier writes of each rank
  // are then visible to all.
  absl::Status Meet(int rank, const Operation& operation, absl::Duration timeout);
  // Returns when all ranks that met have called it, so that nothing reads this rank's offer any
  // more. Has no timeout and no failure: peers between Meet and Part only copy memory, and the
  // caller's buffers must not go away meanwhile.
  void Part(int rank);
  // Valid between Meet and Part only.
  const Offer& offer(int rank) const { return offers_[static_cast<size_t>(rank)]; }

  // A message stays in its sender's memory until the receiver has copied it.
  enum class LetterState { kPosted, kTaken, kDone };
  struct Letter {
    Operation operation;
    const std::byte* data = nullptr;
    LetterState state = LetterState::kPosted;
  };
  void PostLetter(int from, int to, Letter* letter);
  absl::Status TakeLetter(int from, int to, const Operation& operation, absl::Duration timeout,
                          Letter** letter);
  void FinishLetter(Letter* letter);
  // Returns when the receiver has finished with the letter. On failure removes it from the mailbox.
  absl::Status AwaitLetter(int from, int to, Letter* letter, absl::Duration timeout);

  absl::Status Fail(const absl::Status& status);
  absl::Status failure() const;
  void Leave(int rank);

  // The group of the ranks that call this: all ranks that have not left. `ranks`: their numbers
  // here, ascending. All callers get the same.
  struct Remainder {
    std::shared_ptr<LocalGroup> group;
    std::vector<int> ranks;
  };
  absl::StatusOr<Remainder> Shrink(int rank, absl::Duration timeout);

  // The group of a subset. The first of its `members` to call creates it, the last releases it.
  std::shared_ptr<LocalGroup> Subset(const std::string& key, int members);

 private:
  struct PendingSubset {
    std::shared_ptr<LocalGroup> group;
    int missing = 0;
  };
  std::deque<Letter*>& Mailbox(int from, int to) {
    return mailboxes_[static_cast<size_t>(from) * static_cast<size_t>(world_size_) +
                      static_cast<size_t>(to)];
  }
  absl::Status FailLocked(const absl::Status& status);

  const int world_size_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Offer> offers_;
  std::vector<uint64_t> meetings_;  // calls of Meet, by rank
  std::vector<uint64_t> partings_;  // calls of Part, by rank
  std::vector<bool> left_;
  std::vector<bool> shrinking_;  // in Shrink(), or returned from it with remainder_
  Remainder remainder_;          // complete when all remaining ranks have come
  std::vector<std::deque<Letter*>> mailboxes_;
  std::map<std::string, PendingSubset> subsets_;
  absl::Status failure_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_LOCAL_LOCAL_GROUP_H_
