// The cost of a late ticket for other sessions: the patience of the link, once.
#include <string>
#include <vector>

#include "daemon/core/transfers/transfer_scheduler.h"
#include "gtest/gtest.h"

namespace geminid::core {
namespace {

constexpr SessionId kHolder{1};
constexpr SessionId kOther{2};
constexpr DeviceIndex kDevice{0};
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr Direction kLoad = Direction::kHostToDevice;

Time At(int64_t milliseconds) { return Time::FromNanoseconds(milliseconds * 1'000'000); }

// A link of 64 MiB that is patient for 100 ms. A session that was late is limited to its part for
// 10 s.
class TransferParts : public ::testing::Test {
 protected:
  static TransferLimits Limits() {
    TransferLimits limits;
    limits.link_bytes_in_flight = 64 * kMiB;
    return limits;
  }

  void Enqueue(SessionId session, uint64_t bytes, int64_t at) {
    ++requests_;
    ASSERT_TRUE(scheduler_.Enqueue(session,
                                   {.request_id = requests_,
                                    .direction = kLoad,
                                    .bytes = bytes,
                                    .cause = TransferCause::kPrefetch,
                                    .source = ChunkId{1'000'000},
                                    .destination = ChunkId{requests_}},
                                   At(at)));
  }
  // The session's tickets among those that are granted now.
  std::vector<Ticket> Grant(SessionId session, int64_t at) {
    std::vector<Ticket> granted = scheduler_.Grant(At(at));
    std::erase_if(granted, [&](const Ticket& ticket) { return ticket.session != session; });
    return granted;
  }
  std::vector<Ticket> Ask(SessionId session, uint64_t bytes, int64_t at) {
    Enqueue(session, bytes, at);
    return Grant(session, at);
  }
  // The time of the session's next ticket, with a look whenever the scheduler asks for one; -1:
  // none comes.
  int64_t ComesAt(SessionId session, int64_t from, int64_t until) {
    for (int64_t at = from; at <= until;) {
      (void)scheduler_.MarkOverdue(At(at));
      if (!Grant(session, at).empty()) return at;
      const std::optional<Time> next = scheduler_.NextTimeout();
      if (!next.has_value()) return -1;
      at = std::max(at + 1, next->nanoseconds() / 1'000'000);
    }
    return -1;
  }

  TransferScheduler scheduler_{Limits()};
  uint32_t requests_ = 0;
};

TEST_F(TransferParts, FullLinkThatIsNeverCompleted_DelaysOthersByThePatience) {
  scheduler_.AddSession(kHolder, kDevice, 1, "holder");
  scheduler_.AddSession(kOther, kDevice, 1, "other");
  ASSERT_EQ(Ask(kHolder, 64 * kMiB, 0).size(), 1u);
  EXPECT_TRUE(Ask(kOther, 4096, 10).empty()) << "until then the link is busy, as far as one knows";
  EXPECT_EQ(*scheduler_.NextTimeout(), At(100));
  EXPECT_EQ(ComesAt(kOther, 10, 60'000), 100);
  EXPECT_EQ(Ask(kOther, 60 * kMiB, 101).size(), 1u) << "the rest of the link is there, too";
}

TEST_F(TransferParts, SmallTicketThatIsNeverCompleted_DelaysALargeOneByThePatience) {
  scheduler_.AddSession(kHolder, kDevice, 1, "holder");
  scheduler_.AddSession(kOther, kDevice, 1, "other");
  ASSERT_EQ(Ask(kHolder, 4096, 0).size(), 1u);
  EXPECT_TRUE(Ask(kOther, 64 * kMiB, 50).empty());
  EXPECT_EQ(ComesAt(kOther, 50, 60'000), 100);
}

TEST_F(TransferParts, ManyHoldersOfOneTenant_DelayOthersOnceTogether) {
  scheduler_.AddSession(kOther, kDevice, 1, "other");
  for (uint64_t i = 0; i < 200; ++i) {
    scheduler_.AddSession(SessionId{100 + i}, kDevice, 1.0 / 200, "holder");
    Enqueue(SessionId{100 + i}, 16 * kMiB, 0);
  }
  EXPECT_EQ(scheduler_.Grant(At(0)).size(), 4u);
  Enqueue(kOther, 16 * kMiB, 0);
  EXPECT_EQ(ComesAt(kOther, 0, 60'000), 100);
  for (uint64_t i = 0; i < 200; ++i) Enqueue(SessionId{100 + i}, 4096, 100);
  for (int64_t at = 101; at < 5000; at += 37) {
    const std::vector<Ticket> tickets = Ask(kOther, 32 * kMiB, at);
    ASSERT_EQ(tickets.size(), 1u) << at;
    ASSERT_TRUE(scheduler_.Complete(kOther, tickets[0].id, At(at + 1)));
  }
}

TEST_F(TransferParts, HolderThatEndsAndComesAgain_DelaysNobodyTwice) {
  scheduler_.AddSession(kHolder, kDevice, 1, "holder");
  scheduler_.AddSession(kOther, kDevice, 1, "other");
  ASSERT_EQ(Ask(kHolder, 64 * kMiB, 0).size(), 1u);
  Enqueue(kOther, 4096, 0);
  EXPECT_EQ(ComesAt(kOther, 0, 60'000), 100);
  scheduler_.RemoveSession(kHolder, At(200));
  const SessionId again{3};
  scheduler_.AddSession(again, kDevice, 1, "holder");
  ASSERT_EQ(Ask(again, 64 * kMiB, 201).size(), 1u) << "it may copy, alone in its part";
  EXPECT_TRUE(Ask(again, 4096, 202).empty()) << "but no more than its part";
  EXPECT_EQ(Ask(kOther, 32 * kMiB, 203).size(), 1u);
}

// The ticket was late for longer than the time for which a tenant is limited afterwards.
TEST_F(TransferParts, HolderThatEndsLongAfterItWasLate_IsHeldToItsPartFromThenOn) {
  scheduler_.AddSession(kHolder, kDevice, 1, "holder");
  scheduler_.AddSession(kOther, kDevice, 1, "other");
  ASSERT_EQ(Ask(kHolder, 64 * kMiB, 0).size(), 1u);
  Enqueue(kOther, 4096, 0);
  EXPECT_EQ(ComesAt(kOther, 0, 60'000), 100);
  scheduler_.RemoveSession(kHolder, At(30'000));
  const SessionId again{3};
  scheduler_.AddSession(again, kDevice, 1, "holder");
  ASSERT_EQ(Ask(again, 32 * kMiB, 30'001).size(), 1u);
  EXPECT_TRUE(Ask(again, 32 * kMiB, 30'002).empty());
  EXPECT_EQ(Ask(kOther, 32 * kMiB, 30'003).size(), 1u);
}

TEST_F(TransferParts, LateTicketThatIsCompleted_GivesItsPartBackAndLaterTheLink) {
  scheduler_.AddSession(kHolder, kDevice, 1, "holder");
  scheduler_.AddSession(kOther, kDevice, 1, "other");
  const Ticket late = Ask(kHolder, 64 * kMiB, 0).at(0);
  Enqueue(kOther, 4096, 0);
  EXPECT_EQ(ComesAt(kOther, 0, 60'000), 100);
  EXPECT_TRUE(Ask(kHolder, 8 * kMiB, 110).empty());
  ASSERT_TRUE(scheduler_.Complete(kHolder, late.id, At(120)));
  EXPECT_EQ(Grant(kHolder, 120).size(), 1u);
  EXPECT_EQ(Ask(kHolder, 8 * kMiB, 121).size(), 1u);
  EXPECT_TRUE(Ask(kHolder, 32 * kMiB, 122).empty()) << "its part is 32 MiB";
  for (const uint64_t id : {3, 4}) {
    ASSERT_TRUE(scheduler_.Complete(kHolder, TicketId{id}, At(130)));
  }
  ASSERT_EQ(Grant(kHolder, 130).size(), 1u);
  ASSERT_TRUE(scheduler_.Complete(kHolder, TicketId{5}, At(140)));
  EXPECT_EQ(Ask(kHolder, 30 * kMiB, 10'120).size(), 1u);
  EXPECT_EQ(Ask(kHolder, 30 * kMiB, 10'120).size(), 1u)
      << "alone it may have all of the link again";
}

TEST_F(TransferParts, TicketOfASessionWhosePartIsTooSmall_GoesAlone) {
  scheduler_.AddSession(kHolder, kDevice, 1, "holder");
  scheduler_.AddSession(kOther, kDevice, 1'000'000, "other");
  const Ticket late = Ask(kHolder, 64 * kMiB, 0).at(0);
  Enqueue(kOther, 4096, 0);
  EXPECT_EQ(ComesAt(kOther, 0, 60'000), 100);
  ASSERT_TRUE(scheduler_.Complete(kHolder, late.id, At(150)));
  const std::vector<Ticket> alone = Ask(kHolder, kMiB, 151);
  ASSERT_EQ(alone.size(), 1u) << "its part is 67 bytes";
  EXPECT_TRUE(Ask(kHolder, kMiB, 152).empty());
  ASSERT_TRUE(scheduler_.Complete(kHolder, alone[0].id, At(153)));
  EXPECT_EQ(Grant(kHolder, 153).size(), 1u);
}

TEST_F(TransferParts, OtherSessionOfTheHoldersTenant_HasAPartOfItsOwn) {
  scheduler_.AddSession(kHolder, kDevice, 0.5, "one");
  scheduler_.AddSession(kOther, kDevice, 0.5, "one");
  ASSERT_EQ(Ask(kHolder, 64 * kMiB, 0).size(), 1u);
  Enqueue(kOther, 16 * kMiB, 0);
  EXPECT_EQ(ComesAt(kOther, 0, 60'000), 100);
  EXPECT_EQ(Ask(kOther, 16 * kMiB, 101).size(), 1u);
  EXPECT_TRUE(Ask(kOther, kMiB, 101).empty());
}

TEST_F(TransferParts, TicketOfAnEarlierDaemonThatIsNeverCompleted_DelaysNobody) {
  scheduler_.AddSession(kHolder, kDevice, 1, "holder");
  scheduler_.AddSession(kOther, kDevice, 1, "other");
  Enqueue(kOther, kMiB, 1000);
  for (const Ticket& ticket : Grant(kOther, 1000)) {
    ASSERT_TRUE(scheduler_.Complete(kOther, ticket.id, At(1001)));
  }
  ASSERT_TRUE(scheduler_.Restore({.session = kHolder,
                                  .id = TicketId{77},
                                  .granted_at = At(500),
                                  .request = {.request_id = 99,
                                              .direction = kLoad,
                                              .bytes = 64 * kMiB,
                                              .destination = ChunkId{5}}},
                                 At(1002)));
  EXPECT_EQ(Ask(kOther, 64 * kMiB, 1003).size(), 1u);
}

// Transfers that complete in time may fill the link, whatever other sessions are attached.
TEST_F(TransferParts, SessionThatCompletesInTime_IsNotHeldToItsPart) {
  scheduler_.AddSession(kHolder, kDevice, 1, "holder");
  scheduler_.AddSession(kOther, kDevice, 1, "other");
  for (int64_t at = 0; at < 5000; at += 99) {
    const Ticket first = Ask(kHolder, 32 * kMiB, at).at(0);
    const Ticket second = Ask(kHolder, 32 * kMiB, at).at(0);
    Enqueue(kOther, kMiB, at);
    EXPECT_TRUE(Grant(kOther, at + 98).empty());
    ASSERT_TRUE(scheduler_.Complete(kHolder, first.id, At(at + 98)));
    ASSERT_TRUE(scheduler_.Complete(kHolder, second.id, At(at + 98)));
    const std::vector<Ticket> of_other = Grant(kOther, at + 98);
    ASSERT_EQ(of_other.size(), 1u);
    ASSERT_TRUE(scheduler_.Complete(kOther, of_other[0].id, At(at + 98)));
  }
}

}  // namespace
}  // namespace geminid::core
