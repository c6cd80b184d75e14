// Sends and receives messages over several connections at the same time.
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

struct OutgoingMessage {
  int peer = -1;
  const std::byte* data = nullptr;
  size_t bytes = 0;
};
struct IncomingMessage {
  int peer = -1;
  std::byte* data = nullptr;
  size_t bytes = 0;
};
// The messages of one exchange: per peer at most one in each direction. Those sent carry `sent`,
// and those received must carry `expected`.
struct ExchangeMessages {
  Operation sent{};
  Operation expected{};
  std::vector<OutgoingMessage> sends{};
  std::vector<IncomingMessage> receives{};
};

// A message is a head (the operation and the number of bytes) and the bytes. This class copies
// nothing: the kernel reads and writes the caller's memory. Used by one thread at a time.
class Exchange {
 public:
  // `sockets` are by peer. A wait ends when `wake` becomes readable. All arguments outlive it.
  Exchange(std::span<const base::UniqueFd> sockets, int wake, const ExchangeMessages& messages);
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Sends and receives as much as possible without waiting.
  void Advance();

  // kBroken and kMismatched are final.
  enum class Outcome { kDone, kWoken, kLate, kBroken, kMismatched };
  // Moves all bytes, and waits for that.
  Outcome Run(const base::Deadline& deadline);

  bool IsDone() const;
  // The peer whose connection broke, or whose operation differs.
  int peer() const { return peer_; }
  // That peer's operation.
  const Operation& others() const { return others_; }
  // Peers whose heads have not come. If all heads have come: peers whose bytes have not. If those
  // have too: peers that have not taken all bytes sent to them.
  std::vector<int> Late() const;

 private:
  struct Head {
    Operation operation{};
    uint64_t bytes = 0;
    friend bool operator==(const Head&, const Head&) = default;
  };
  static_assert(sizeof(Head) == sizeof(Operation) + sizeof(uint64_t), "it crosses processes");

  // One message. The data of a message to send is not written to.
  struct Transfer {
    int peer = -1;
    Head head{};
    std::byte* data = nullptr;
    size_t bytes = 0;  // without the head
    size_t moved = 0;  // including the head
    bool has_head() const { return moved >= sizeof(Head); }
    bool is_done() const { return moved == sizeof(Head) + bytes; }
  };

  // Returns whether more might be moved at once.
  bool Step(Transfer* transfer, bool is_send);
  void End(Outcome outcome, int peer);

  const std::span<const base::UniqueFd> sockets_;
  const Operation expected_;
  std::vector<Transfer> sends_;
  std::vector<Transfer> receives_;
  std::vector<pollfd> polls_;  // for sends_, receives_, wake_
  Outcome outcome_ = Outcome::kDone;
  int peer_ = -1;
  Operation others_{};
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_EXCHANGE_H_
