#include "collectives/tcp/exchange.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace geminid::collectives {
namespace {

constexpr int kLongestWaitMilliseconds = 3'600'000;

}  // namespace

Exchange::Exchange(std::span<const base::UniqueFd> sockets, int wake,
                   const ExchangeMessages& messages)
    : sockets_(sockets), expected_(messages.expected) {
  for (const OutgoingMessage& send : messages.sends) {
    sends_.push_back({.peer = send.peer,
                      .head = {.operation = messages.sent, .bytes = send.bytes},
                      .data = const_cast<std::byte*>(send.data),
                      .bytes = send.bytes});
  }
  for (const IncomingMessage& receive : messages.receives) {
    receives_.push_back({.peer = receive.peer, .data = receive.data, .bytes = receive.bytes});
  }
  const auto add = [this](int fd, short events) {
    polls_.push_back({.fd = fd, .events = events, .revents = events});
  };
  for (const Transfer& send : sends_) add(sockets_[static_cast<size_t>(send.peer)].get(), POLLOUT);
  for (const Transfer& receive : receives_) {
    add(sockets_[static_cast<size_t>(receive.peer)].get(), POLLIN);
  }
  polls_.push_back({.fd = wake, .events = POLLIN, .revents = 0});
}

void Exchange::Advance() {
  for (size_t i = 0; i + 1 < polls_.size(); ++i) {
    if (outcome_ != Outcome::kDone) return;
    if (polls_[i].revents == 0) continue;
    const bool is_send = i < sends_.size();
    Transfer* transfer = is_send ? &sends_[i] : &receives_[i - sends_.size()];
    if (!Step(transfer, is_send)) polls_[i].revents = 0;
    if (transfer->is_done()) polls_[i].fd = -1;  // poll skips it
  }
}

Exchange::Outcome Exchange::Run(const base::Deadline& deadline) {
  for (;;) {
    Advance();
    if (outcome_ != Outcome::kDone) return outcome_;
    if (IsDone()) return Outcome::kDone;
    const bool is_stuck = std::all_of(polls_.begin(), polls_.end() - 1,
                                      [](const pollfd& entry) { return entry.revents == 0; });
    if (is_stuck && deadline.Passed()) return Outcome::kLate;
    const int limit = is_stuck ? deadline.LeftMilliseconds(kLongestWaitMilliseconds) : 0;
    (void)::poll(polls_.data(), polls_.size(), limit);
    if (polls_.back().revents != 0) return Outcome::kWoken;
  }
}

bool Exchange::Step(Transfer* transfer, bool is_send) {
  iovec parts[2];
  size_t count = 0;
  if (!transfer->has_head()) {
    parts[count++] = {.iov_base = reinterpret_cast<std::byte*>(&transfer->head) + transfer->moved,
                      .iov_len = sizeof(Head) - transfer->moved};
  }
  const size_t begin = transfer->has_head() ? transfer->moved - sizeof(Head) : 0;
  const size_t rest = transfer->bytes - begin;
  if (rest > 0) parts[count++] = {.iov_base = transfer->data + begin, .iov_len = rest};
  if (count == 0) return false;
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  const size_t asked = parts[0].iov_len + (count > 1 ? parts[1].iov_len : 0);
  const int socket = sockets_[static_cast<size_t>(transfer->peer)].get();
  const ssize_t moved = is_send ? ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT)
                                : ::recvmsg(socket, &message, MSG_DONTWAIT);
  if (moved < 0 && errno == EINTR) return true;
  if (moved < 0 && errno == EAGAIN) return false;
  if (moved <= 0) {
    End(Outcome::kBroken, transfer->peer);
    return false;
  }
  const bool had_head = transfer->has_head();
  transfer->moved += static_cast<size_t>(moved);
  if (!is_send && !had_head && transfer->has_head() &&
      transfer->head != Head{.operation = expected_, .bytes = transfer->bytes}) {
    others_ = transfer->head.operation;
    End(Outcome::kMismatched, transfer->peer);
  }
  return static_cast<size_t>(moved) == asked && !transfer->is_done();
}

void Exchange::End(Outcome outcome, int peer) {
  outcome_ = outcome;
  peer_ = peer;
}

bool Exchange::IsDone() const {
  const auto is_done = [](const Transfer& transfer) { return transfer.is_done(); };
  return std::all_of(receives_.begin(), receives_.end(), is_done) &&
         std::all_of(sends_.begin(), sends_.end(), is_done);
}

std::vector<int> Exchange::Late() const {
  std::vector<int> late;
  const auto add = [&](const std::vector<Transfer>& transfers, auto is_late) {
    if (!late.empty()) return;
    for (const Transfer& transfer : transfers) {
      if (is_late(transfer)) late.push_back(transfer.peer);
    }
  };
  add(receives_, [](const Transfer& transfer) { return !transfer.has_head(); });
  add(receives_, [](const Transfer& transfer) { return !transfer.is_done(); });
  add(sends_, [](const Transfer& transfer) { return !transfer.is_done(); });
  return late;
}

}  // namespace geminid::collectives
