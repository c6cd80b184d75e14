#include "collectives/tcp/peer_listener.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/tcp/socket.h"

namespace geminid::collectives {
namespace {

base::Deadline Never() { return base::Deadline::In(absl::InfiniteDuration()); }

// The next text, or nothing if the other end is gone.
std::string Next(const base::UniqueFd& socket) {
  pollfd entry{.fd = socket.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&entry, 1, -1), 1);
  char bytes[64] = {};
  const ssize_t count = ::recv(socket.get(), bytes, sizeof(bytes), 0);
  return std::string(bytes, count > 0 ? static_cast<size_t>(count) : 0);
}

class ArrivalsTest : public testing::Test {
 protected:
  base::UniqueFd Come() {
    auto socket = DialTcpOnce("127.0.0.1", peer_listener_->port(), Never());
    EXPECT_TRUE(socket.ok()) << socket.status();
    return *std::move(socket);
  }
  base::UniqueFd ComeFor(const std::string& purpose, int rank) {
    base::UniqueFd socket = Come();
    EXPECT_EQ(Introduce(socket.get(), purpose, rank), absl::OkStatus());
    return socket;
  }
  // Waits until `count` connections have arrived.
  std::map<int, base::UniqueFd> Take(const std::string& purpose, size_t count) {
    std::map<int, base::UniqueFd> all;
    while (all.size() < count) {
      auto some = peer_listener_->Take(purpose);
      EXPECT_TRUE(some.ok()) << some.status();
      for (auto& [rank, socket] : *some) all[rank] = std::move(socket);
      if (all.size() < count) peer_listener_->Await(Never());
    }
    return all;
  }

  const std::unique_ptr<PeerListener> peer_listener_ = *PeerListener::Open("127.0.0.1", "");
};

TEST_F(ArrivalsTest, ForSeveralPurposes_AreGivenToWhoAsksForThem) {
  const auto one = ComeFor("a", 1), two = ComeFor("b", 1), three = ComeFor("a", 3);
  EXPECT_EQ(Take("a", 2).size(), 2u);
  EXPECT_EQ(Take("b", 1).begin()->first, 1);
  EXPECT_TRUE(Take("a", 0).empty());
}

TEST_F(ArrivalsTest, WhatFollowsTheIntroduction_IsNotRead) {
  const auto come = ComeFor("a", 1);
  ASSERT_EQ(::send(come.get(), "data", 4, 0), 4);
  EXPECT_EQ(Next(Take("a", 1).at(1)), "data");
}

TEST_F(ArrivalsTest, OneThatSaysNothing_HoldsUpNobodyAndIsKept) {
  const auto silent = Come();
  const auto come = ComeFor("a", 1);
  EXPECT_EQ(Take("a", 1).size(), 1u);
  EXPECT_TRUE(Take("a", 0).empty());
  char byte = 0;
  EXPECT_EQ(::recv(silent.get(), &byte, 1, MSG_DONTWAIT), -1)
      << "its end would say that we are dead";
}

TEST_F(ArrivalsTest, OneThatSpeaksAnotherLanguage_IsSentAway) {
  const auto stranger = Come();
  ASSERT_EQ(::send(stranger.get(), "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
  const auto come = ComeFor("a", 1);
  EXPECT_EQ(Take("a", 1).size(), 1u);
  EXPECT_EQ(Next(stranger), "");
}

TEST_F(ArrivalsTest, OneThatComesAgain_IsTheLaterOne) {
  auto first = ComeFor("a", 1);
  const auto second = ComeFor("a", 1);
  first.Reset();
  const auto come = ComeFor("a", 2);
  const auto taken = Take("a", 2);
  ASSERT_EQ(::send(second.get(), "2", 1, 0), 1);
  EXPECT_EQ(Next(taken.at(1)), "2");
}

// The system may give a socket the very port to which it connects.
TEST(Dial, WhereNobodyListens_FindsNobody) {
  uint16_t port = 0;
  {
    auto listener = ListenTcp("127.0.0.1", 0);
    port = *PortOf(listener->get());
  }
  const auto status = DialTcpOnce("127.0.0.1", port, Never()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_NE(status.message().find("127.0.0.1"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace geminid::collectives
