// Messages that are sent and received over several connections at the same time.
#ifndef GEMINID_COLLECTIVES_TCP_EXCHANGE_H_
#define GEMINID_COLLECTIVES_TCP_EXCHANGE_H_

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/deadline.h"
#include "base/unique_fd.h"
#include "collectives/operation.h"

namespace geminid::collectives {

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
// What goes and comes in one exchange: at most one of each per peer. The messages say `sent`, those
// received must say `expected`.
struct Parcels {
  Operation sent{};
  Operation expected{};
  std::vector<Sending> sends{};
  std::vector<Receiving> receives{};
};

// A message is a head (the operation and the number of bytes) and the bytes. The kernel copies them
// from the sender's memory and to the receiver's; this copies nothing. One thread at a time.
class Exchange {
 public:
  // `sockets` are by peer. What becomes readable at `wake` ends a wait. All must outlive this.
  Exchange(std::span<const base::UniqueFd> sockets, int wake, const Parcels& parcels);
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Sends and receives as much as can be without waiting.
  void Advance();

  // The last two are final.
  enum class Ending { kDone, kWoken, kLate, kBroken, kMismatched };
  // Moves all; waits until that is done.
  Ending Run(const base::Deadline& deadline);

  bool IsDone() const;
  // The peer whose connection broke, or whose operation is another.
  int peer() const { return peer_; }
  // The operation of that peer.
  const Operation& others() const { return others_; }
  // Peers whose heads have not come. If all have: peers whose bytes have not come. If all have:
  // peers that have not taken all that was sent to them.
  std::vector<int> Late() const;

 private:
  struct Head {
    Operation operation{};
    uint64_t bytes = 0;
    friend bool operator==(const Head&, const Head&) = default;
  };
  static_assert(sizeof(Head) == sizeof(Operation) + sizeof(uint64_t), "it crosses processes");

  // One message; the data of one that is sent are not written to.
  struct Transfer {
    int peer = -1;
    Head head{};
    std::byte* data = nullptr;
    size_t bytes = 0;  // without the head
    size_t moved = 0;  // with it
    bool has_head() const { return moved >= sizeof(Head); }
    bool is_done() const { return moved == sizeof(Head) + bytes; }
  };

  // Whether there may be more to move at once.
  bool Step(Transfer* transfer, bool is_send);
  void End(Ending ending, int peer);

  const std::span<const base::UniqueFd> sockets_;
  const Operation expected_;
  std::vector<Transfer> sends_;
  std::vector<Transfer> receives_;
  std::vector<pollfd> polls_;  // of sends_, receives_, wake_
  Ending ending_ = Ending::kDone;
  int peer_ = -1;
  Operation others_{};
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_EXCHANGE_H_
