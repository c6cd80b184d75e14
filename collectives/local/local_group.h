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
  struct SharedBuffers {
    Operation operation;
    const std::byte* in = nullptr;
    const std::byte* out = nullptr;
  };
  void Post(int rank, const SharedBuffers& buffers);
  // Returns when all ranks have called it as often as this rank. All earlier writes of each rank
  // are then visible to all.
  absl::Status Meet(int rank, const Operation& operation, absl::Duration timeout);
  // Returns when all ranks that met have called it, so that nothing reads this rank's buffers any
  // more. Has no timeout and no failure: peers between Meet and Part only copy memory, and the
  // caller's buffers must not go away meanwhile.
  void Part(int rank);
  // Valid between Meet and Part only.
  const SharedBuffers& buffers(int rank) const { return buffers_[static_cast<size_t>(rank)]; }

  // A message stays in its sender's memory until the receiver has copied it.
  enum class PostedMessageState { kPosted, kTaken, kDone };
  struct PostedMessage {
    Operation operation;
    const std::byte* data = nullptr;
    PostedMessageState state = PostedMessageState::kPosted;
  };
  void PostMessage(int from, int to, PostedMessage* message);
  absl::Status TakeMessage(int from, int to, const Operation& operation, absl::Duration timeout,
                           PostedMessage** message);
  void FinishMessage(PostedMessage* message);
  // Returns when the receiver has finished with the message. On failure removes it from the
  // mailbox.
  absl::Status AwaitMessage(int from, int to, PostedMessage* message, absl::Duration timeout);

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
  std::deque<PostedMessage*>& Mailbox(int from, int to) {
    return mailboxes_[static_cast<size_t>(from) * static_cast<size_t>(world_size_) +
                      static_cast<size_t>(to)];
  }
  absl::Status FailLocked(const absl::Status& status);

  const int world_size_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<SharedBuffers> buffers_;
  std::vector<uint64_t> meetings_;  // calls of Meet, by rank
  std::vector<uint64_t> partings_;  // calls of Part, by rank
  std::vector<bool> left_;
  std::vector<bool> shrinking_;  // in Shrink(), or returned from it with remainder_
  Remainder remainder_;          // complete when all remaining ranks have come
  std::vector<std::deque<PostedMessage*>> mailboxes_;
  std::map<std::string, PendingSubset> subsets_;
  absl::Status failure_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_LOCAL_LOCAL_GROUP_H_
