// Point-to-point messages over gloo: what the collectives of this backend are composed of.
#ifndef GEMINID_COLLECTIVES_GLOO_GLOO_LINKS_H_
#define GEMINID_COLLECTIVES_GLOO_GLOO_LINKS_H_

#include <condition_variable>
#include <functional>
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

// Every message begins with one of at most this size, which carries the operation and, if they fit,
// the bytes. The receiver compares the operation before it lets gloo receive more: gloo ends the
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
    // Asked while the others are waited for, and only then; its error ends the wait. May be empty.
    std::function<absl::Status()> look{};
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
  // What goes and comes in one exchange: at most one of each per peer. The messages say `sent`,
  // those received must say `expected`.
  struct Parcels {
    Operation sent{};
    Operation expected{};
    std::vector<Sending> sends{};
    std::vector<Receiving> receives{};
  };
  // Returns when all is sent and received.
  absl::Status Exchange(const Parcels& parcels, absl::Duration timeout);

  // The same in steps, between which the caller may do something else: nothing is sent or received
  // any more once it is gone. One at a time.
  class Running {
   public:
    Running(GlooLinks* links, const Parcels& parcels, absl::Duration timeout);
    ~Running();
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

    absl::Status Begin();     // lets all be sent; does not wait
    absl::Status Admit();     // waits until all peers have begun, and lets all be received
    absl::Status Complete();  // waits until all is sent and received

   private:
    GlooLinks* const links_;
    const Parcels& parcels_;
    const absl::Duration timeout_;
    const base::Deadline deadline_;
    std::vector<gloo::transport::UnboundBuffer*> bulk_sends_;
    std::vector<gloo::transport::UnboundBuffer*> bulk_receives_;
  };

  // Makes `status` the failure of this rank at once, and of the group if it has none yet.
  void Abort(const absl::Status& status);
  absl::Status failure() const;
  // Makes `status` the failure of the group, unless it has one already; returns the group's.
  absl::Status Fail(const absl::Status& status);
  // Ranks of the group that have left it in good order.
  std::set<int> left() const;
  // Hears the failure of the group, at once if there is one, on any thread. It must return soon and
  // call nothing here. When this returns the watcher before is not being called and never will be.
  void Watch(std::function<void(const absl::Status&)> watcher);

  const Options& options() const { return options_; }

 private:
  using UnboundBuffer = gloo::transport::UnboundBuffer;
  struct Waiting {
    const Operation& operation;
    absl::Duration timeout;
    base::Deadline deadline;
  };

  explicit GlooLinks(Options options);
  absl::Status ConnectMesh(const Member::Look& look, const base::Deadline& deadline);
  // Whoever left, or failed, before all have connected would end the connecting of the others.
  absl::Status Meet(absl::Duration timeout);

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
  absl::Status Explain(const Waiting& waiting, Ending ending, int peer,
                       const std::vector<int>& late);
  absl::Status AwaitVerdict(int peer);
  void Record(const absl::Status& status);  // mutex_ is held

  void OnFailure(const absl::Status& status) override;
  void OnDeath(const Death& death) override;
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
  std::function<void(const absl::Status&)> watcher_;
  std::set<int> left_;                                   // ranks of the group
  std::vector<std::unique_ptr<UnboundBuffer>> buffers_;  // of the running exchange
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_GLOO_GLOO_LINKS_H_
