// Point-to-point messages over gloo: what the collectives of this backend are composed of.
#ifndef GEMINID_COLLECTIVES_GLOO_GLOO_LINKS_H_
#define GEMINID_COLLECTIVES_GLOO_GLOO_LINKS_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/deadline.h"
#include "collectives/gloo/member.h"
#include "collectives/operation.h"

namespace gloo {
class Context;
namespace transport {
class Device;
class UnboundBuffer;
}  // namespace transport
}  // namespace gloo

namespace geminid::collectives {

// Every message begins with one of fixed size that carries the operation and, if they fit, the
// bytes. The receiver compares the operation before it lets gloo receive more: gloo ends the
// process when a message is longer than its buffer.
inline constexpr size_t kEagerBytes = 4096;

// One thread at a time calls Exchange(); Abort() and the listener's calls may come from others.
class GlooLinks final : public GroupListener {
 public:
  struct Options {
    std::shared_ptr<Member> member{};
    std::shared_ptr<gloo::transport::Device> device;
    std::string group{};             // unique in the job, the same on all members
    std::vector<int> world_ranks{};  // by rank of the group
    int rank = 0;                    // in the group
    absl::Duration connect_timeout;
  };
  // Blocks until every member has connected to every other.
  static absl::StatusOr<std::unique_ptr<GlooLinks>> Connect(Options options);
  ~GlooLinks() override;

  struct Sending {
    int peer = -1;
    const std::byte* data = nullptr;
    size_t bytes = 0;
  };
  struct Receiving {
    int peer = -1;
    std::byte* data = nullptr;
    size_t bytes = 0;
  };
  // At most one of each per peer. Returns when all is sent and received. The messages say `sent`,
  // those received must say `expected`.
  absl::Status Exchange(const Operation& sent, std::span<const Sending> sends,
                        const Operation& expected, std::span<const Receiving> receives,
                        absl::Duration timeout);

  // Makes `status` the failure of this rank at once, and of the group if it has none yet.
  void Abort(const absl::Status& status);
  absl::Status failure() const;

  const Options& options() const { return options_; }

 private:
  using UnboundBuffer = gloo::transport::UnboundBuffer;
  struct Waiting {
    const Operation& operation;
    absl::Duration timeout;
    base::Deadline deadline;
  };

  explicit GlooLinks(Options options);
  absl::Status ConnectMesh();

  absl::StatusOr<UnboundBuffer*> NewBuffer(void* data, size_t bytes);
  void DropBuffers();
  absl::Status Start(const Operation& operation, std::span<const Sending> sends,
                     std::span<const Receiving> receives, std::vector<UnboundBuffer*>* bulk_sends);
  absl::Status ReceiveHeads(const Waiting& waiting, std::span<const Receiving> receives,
                            std::vector<UnboundBuffer*>* bulk_receives);
  absl::Status Complete(const Waiting& waiting, std::span<const Sending> sends,
                        std::span<const Receiving> receives,
                        const std::vector<UnboundBuffer*>& bulk_sends,
                        const std::vector<UnboundBuffer*>& bulk_receives);

  // A wait that ended badly, and with whom.
  enum class Ending { kDone, kInterrupted, kBroken };
  static Ending Await(UnboundBuffer* buffer, bool receiving, const base::Deadline& deadline);
  // Makes `status` the failure of the group, unless it has one already, and waits to hear which.
  void Fail(const absl::Status& status);
  absl::Status Explain(const Waiting& waiting, Ending ending, int peer,
                       const std::vector<int>& late);
  absl::Status AwaitVerdict(int peer);

  void OnFailure(const absl::Status& status) override;
  void OnDeath(int world_rank) override;
  void OnLeave(int world_rank) override;
  void Interrupt();

  const Options options_;
  std::shared_ptr<gloo::Context> context_;
  std::vector<std::byte> eager_memory_;  // kEagerBytes to send and as many to receive, by peer
  std::vector<std::unique_ptr<UnboundBuffer>> eager_sends_;
  std::vector<std::unique_ptr<UnboundBuffer>> eager_receives_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status failure_;
  std::set<int> left_;                                   // ranks of the group
  std::vector<std::unique_ptr<UnboundBuffer>> buffers_;  // of the running exchange
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_GLOO_GLOO_LINKS_H_
