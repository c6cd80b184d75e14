#include "collectives/tcp/exchange.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

namespace geminid::collectives {
namespace {

using Outcome = Exchange::Outcome;

constexpr size_t kHeadBytes = sizeof(Operation) + sizeof(uint64_t);
constexpr Operation kOperation = {.kind = OpKind::kAllGather, .count = 3};

std::vector<std::byte> Bytes(size_t count, int seed) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<std::byte>(i * 7 + i / 256 + static_cast<size_t>(seed));
  return bytes;
}

// Rank 0 and two others, each at the other end of a connection.
class ExchangeTest : public testing::Test {
 protected:
  ExchangeTest() : wake_(::eventfd(0, EFD_NONBLOCK)) {
    sockets_.emplace_back();
    for (int peer = 1; peer <= 2; ++peer) {
      int ends[2] = {-1, -1};
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
      sockets_.emplace_back(ends[0]);
      others_[peer] = base::UniqueFd(ends[1]);
    }
  }
  static base::Deadline Soon() { return base::Deadline::In(absl::Milliseconds(1)); }
  static base::Deadline Never() { return base::Deadline::In(absl::InfiniteDuration()); }

  // A message as the other rank writes it.
  static std::vector<std::byte> Message(const Operation& operation,
                                        const std::vector<std::byte>& data) {
    std::vector<std::byte> message(kHeadBytes);
    const uint64_t bytes = data.size();
    std::memcpy(message.data(), &operation, sizeof(operation));
    std::memcpy(message.data() + sizeof(operation), &bytes, sizeof(bytes));
    message.insert(message.end(), data.begin(), data.end());
    return message;
  }
  void Write(int peer, const std::vector<std::byte>& bytes) {
    ASSERT_EQ(::write(others_[peer].get(), bytes.data(), bytes.size()),
              static_cast<ssize_t>(bytes.size()));
  }
  ExchangeMessages Receive(int peer, std::vector<std::byte>* data) {
    return {.expected = kOperation, .receives = {{peer, data->data(), data->size()}}};
  }

  std::vector<base::UniqueFd> sockets_;  // by rank
  base::UniqueFd others_[3];
  const base::UniqueFd wake_;
};

TEST_F(ExchangeTest, MoreThanConnectionsHold_GoesBothWaysAtOnce) {
  constexpr size_t kMuch = 5'000'001;
  std::vector<std::byte> out[2] = {Bytes(kMuch, 1), Bytes(kMuch, 2)};
  std::vector<std::byte> in[2] = {std::vector<std::byte>(kMuch), std::vector<std::byte>(kMuch)};
  const auto swap = [&](int socket, size_t own) {
    std::vector<base::UniqueFd> only(1);
    only[0] = base::UniqueFd(::dup(socket));
    const ExchangeMessages messages{.sent = kOperation,
                                    .expected = kOperation,
                                    .sends = {{0, out[own].data(), kMuch}},
                                    .receives = {{0, in[own].data(), kMuch}}};
    Exchange exchange(only, wake_.get(), messages);
    EXPECT_EQ(exchange.Run(Never()), Outcome::kDone);
  };
  std::thread other([&] { swap(others_[1].get(), 1); });
  swap(sockets_[1].get(), 0);
  other.join();
  EXPECT_EQ(in[0], out[1]);
  EXPECT_EQ(in[1], out[0]);
}

TEST_F(ExchangeTest, MessageThatComesByteByByte_IsWhole) {
  std::vector<std::byte> data(3);
  const ExchangeMessages messages = Receive(1, &data);
  Exchange exchange(sockets_, wake_.get(), messages);
  const std::vector<std::byte> message = Message(kOperation, Bytes(3, 5));
  for (size_t i = 0; i < message.size(); ++i) {
    EXPECT_EQ(exchange.Run(Soon()), Outcome::kLate);
    Write(1, {message[i]});
  }
  EXPECT_EQ(exchange.Run(Never()), Outcome::kDone);
  EXPECT_EQ(data, Bytes(3, 5));
}

TEST_F(ExchangeTest, WhatFollowsAMessage_IsLeftToTheNextExchange) {
  Write(1, Message(kOperation, Bytes(4, 1)));
  Write(1, Message(kOperation, Bytes(4, 2)));
  for (const int seed : {1, 2}) {
    std::vector<std::byte> data(4);
    const ExchangeMessages messages = Receive(1, &data);
    Exchange exchange(sockets_, wake_.get(), messages);
    EXPECT_EQ(exchange.Run(Never()), Outcome::kDone);
    EXPECT_EQ(data, Bytes(4, seed));
  }
}

TEST_F(ExchangeTest, AnotherOperation_IsNamedWithWhoSaysIt) {
  std::vector<std::byte> data(4);
  const ExchangeMessages messages = Receive(2, &data);
  Operation other = kOperation;
  other.count = 4;
  Write(2, Message(other, Bytes(4, 1)));
  Exchange exchange(sockets_, wake_.get(), messages);
  EXPECT_EQ(exchange.Run(Never()), Outcome::kMismatched);
  EXPECT_EQ(exchange.peer(), 2);
  EXPECT_EQ(exchange.others(), other);
  EXPECT_EQ(exchange.Run(Never()), Outcome::kMismatched) << "it is final";
}

TEST_F(ExchangeTest, MessageOfAnotherLength_IsAMismatchAndWritesNothingBeyondItsRoom) {
  for (const size_t bytes : {size_t{3}, size_t{5}, size_t{100}}) {
    std::vector<std::byte> room(200, std::byte{0xab});
    const ExchangeMessages messages{.expected = kOperation, .receives = {{1, room.data() + 96, 4}}};
    Write(1, Message(kOperation, Bytes(bytes, 1)));
    Exchange exchange(sockets_, wake_.get(), messages);
    EXPECT_EQ(exchange.Run(Never()), Outcome::kMismatched) << bytes;
    for (size_t i = 0; i < room.size(); ++i) {
      if (i >= 96 && i < 100) continue;
      EXPECT_EQ(room[i], std::byte{0xab}) << bytes << " at " << i;
    }
    std::vector<std::byte> rest(200);
    while (::read(sockets_[1].get(), rest.data(), rest.size()) > 0) continue;
  }
}

TEST_F(ExchangeTest, OtherEndThatIsGone_EndsReceivesAndSends) {
  others_[2].Reset();
  std::vector<std::byte> data(4);
  for (const bool is_send : {false, true}) {
    ExchangeMessages messages = Receive(2, &data);
    if (is_send) messages = {.sent = kOperation, .sends = {{2, data.data(), data.size()}}};
    Exchange exchange(sockets_, wake_.get(), messages);
    EXPECT_EQ(exchange.Run(Never()), Outcome::kBroken) << "and no signal";
    EXPECT_EQ(exchange.peer(), 2);
  }
}

TEST_F(ExchangeTest, MessageOfOneThatIsGone_Arrives) {
  std::vector<std::byte> data(4);
  const ExchangeMessages messages = Receive(1, &data);
  Write(1, Message(kOperation, Bytes(4, 9)));
  others_[1].Reset();
  Exchange exchange(sockets_, wake_.get(), messages);
  EXPECT_EQ(exchange.Run(Never()), Outcome::kDone);
  EXPECT_EQ(data, Bytes(4, 9));
}

TEST_F(ExchangeTest, WhoIsLate_IsWhoHasNotBegunThenWhoHasNotEnded) {
  std::vector<std::byte> data(8), much(32'000'000);
  const ExchangeMessages messages{.sent = kOperation,
                                  .expected = kOperation,
                                  .sends = {{1, much.data(), much.size()}},
                                  .receives = {{1, data.data(), 4}, {2, data.data() + 4, 4}}};
  Exchange exchange(sockets_, wake_.get(), messages);
  EXPECT_EQ(exchange.Run(Soon()), Outcome::kLate);
  EXPECT_EQ(exchange.Late(), (std::vector<int>{1, 2}));
  const std::vector<std::byte> message = Message(kOperation, Bytes(4, 1));
  Write(1, message);
  EXPECT_EQ(exchange.Run(Soon()), Outcome::kLate);
  EXPECT_EQ(exchange.Late(), std::vector<int>{2});
  Write(2, {message.begin(), message.end() - 1});
  EXPECT_EQ(exchange.Run(Soon()), Outcome::kLate);
  EXPECT_EQ(exchange.Late(), std::vector<int>{2});
  Write(2, {message.back()});
  EXPECT_EQ(exchange.Run(Soon()), Outcome::kLate);
  EXPECT_EQ(exchange.Late(), std::vector<int>{1}) << "it does not take what it is sent";
}

TEST_F(ExchangeTest, WakeUp_EndsAWaitAndNotTheExchange) {
  std::vector<std::byte> data(4);
  const ExchangeMessages messages = Receive(1, &data);
  Exchange exchange(sockets_, wake_.get(), messages);
  std::thread waker([&] { ::eventfd_write(wake_.get(), 1); });
  EXPECT_EQ(exchange.Run(Never()), Outcome::kWoken);
  waker.join();
  eventfd_t calls = 0;
  EXPECT_EQ(::eventfd_read(wake_.get(), &calls), 0);
  Write(1, Message(kOperation, Bytes(4, 3)));
  EXPECT_EQ(exchange.Run(Never()), Outcome::kDone);
}

TEST_F(ExchangeTest, Advance_SendsWithoutAnybodyThatReceives) {
  const std::vector<std::byte> data = Bytes(4, 1);
  const ExchangeMessages messages{.sent = kOperation,
                                  .sends = {{1, data.data(), 4}, {2, data.data(), 4}}};
  Exchange exchange(sockets_, wake_.get(), messages);
  exchange.Advance();
  EXPECT_TRUE(exchange.IsDone());
}

TEST_F(ExchangeTest, OfNothing_IsDone) {
  const ExchangeMessages messages{};
  Exchange exchange(sockets_, wake_.get(), messages);
  EXPECT_EQ(exchange.Run(Soon()), Outcome::kDone);
}

}  // namespace
}  // namespace geminid::collectives
