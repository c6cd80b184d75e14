#include "daemon/core/transfers/transfer_scheduler.h"

#include <map>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace geminid::core {
namespace {

constexpr SessionId kA{1};
constexpr SessionId kB{2};
constexpr DeviceIndex kDevice{0};
constexpr uint64_t kMiB = uint64_t{1} << 20;

Time At(int64_t milliseconds) { return Time::FromNanoseconds(milliseconds * 1'000'000); }

TransferRequest Load(uint64_t request_id, uint32_t destination, uint64_t bytes = kMiB) {
  return {.request_id = request_id,
          .direction = Direction::kHostToDevice,
          .bytes = bytes,
          .priority = Priority::kNormal,
          .cause = TransferCause::kPrefetch,
          .source = ChunkId{1000},
          .destination = ChunkId{destination}};
}

std::vector<uint64_t> Ids(const std::vector<Ticket>& tickets) {
  std::vector<uint64_t> ids;
  for (const Ticket& ticket : tickets) ids.push_back(ticket.request.request_id);
  return ids;
}

TransferLimits Limits(uint32_t tickets, uint64_t small_bytes = 0) {
  TransferLimits limits;
  limits.tickets_in_flight = tickets;
  limits.small_bytes_in_flight = small_bytes;
  return limits;
}

// With one ticket at a time, the order is visible.
TransferLimits OneAtATime() { return Limits(1); }

// Loads of chunks 0, 1, ..., each for a destination of its own.
void EnqueueLoads(TransferScheduler* scheduler, uint32_t count, uint64_t bytes) {
  for (uint32_t i = 0; i < count; ++i) {
    ASSERT_TRUE(scheduler->Enqueue(kA, Load(i, i, bytes), At(0)));
  }
}

// Grants and completes until nothing is left. Returns the order of request ids.
std::vector<uint64_t> Drain(TransferScheduler* scheduler, SessionId session, Time now) {
  std::vector<uint64_t> order;
  for (;;) {
    const std::vector<Ticket> granted = scheduler->Grant(now);
    if (granted.empty()) return order;
    for (const Ticket& ticket : granted) {
      order.push_back(ticket.request.request_id);
      EXPECT_TRUE(scheduler->Complete(session, ticket.id, now));
    }
  }
}

TEST(TransferScheduler, CountLimit_HoldsPerDirection) {
  TransferScheduler scheduler(Limits(2));
  scheduler.AddSession(kA, kDevice, 1);
  for (uint32_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(scheduler.Enqueue(kA, Load(i, i), At(0)));
    TransferRequest store = Load(10 + i, 10 + i);
    store.direction = Direction::kDeviceToHost;
    ASSERT_TRUE(scheduler.Enqueue(kA, store, At(0)));
  }
  const std::vector<Ticket> granted = scheduler.Grant(At(0));
  EXPECT_EQ(Ids(granted), (std::vector<uint64_t>{0, 1, 10, 11}));
  EXPECT_TRUE(scheduler.Grant(At(0)).empty());
  EXPECT_EQ(scheduler.FlightOf(kA, Direction::kHostToDevice).tickets, 2u);
  EXPECT_EQ(scheduler.FlightOf(kDevice, Direction::kDeviceToHost).bytes, 2 * kMiB);
  ASSERT_TRUE(scheduler.Complete(kA, granted[0].id, At(0)));
  EXPECT_EQ(Ids(scheduler.Grant(At(0))), std::vector<uint64_t>{2});
}

TEST(TransferScheduler, SmallCopies_MayExceedTheCountUntilTheirBytesAreMet) {
  TransferScheduler scheduler(Limits(2, 10));
  scheduler.AddSession(kA, kDevice, 1);
  EnqueueLoads(&scheduler, 6, 3);
  const std::vector<Ticket> granted = scheduler.Grant(At(0));
  EXPECT_EQ(Ids(granted), (std::vector<uint64_t>{0, 1, 2}));
  ASSERT_TRUE(scheduler.Complete(kA, granted[0].id, At(0)));
  EXPECT_EQ(Ids(scheduler.Grant(At(0))), std::vector<uint64_t>{3});
}

TEST(TransferScheduler, LargeCopies_AreHeldToTheCount) {
  TransferScheduler scheduler(Limits(2, 10));
  scheduler.AddSession(kA, kDevice, 1);
  EnqueueLoads(&scheduler, 3, 8);
  // A small copy never bypasses a large one that came before it.
  ASSERT_TRUE(scheduler.Enqueue(kA, Load(3, 3, 1), At(0)));
  EXPECT_EQ(Ids(scheduler.Grant(At(0))), (std::vector<uint64_t>{0, 1}));
  EXPECT_TRUE(scheduler.Grant(At(0)).empty());
}

TEST(TransferScheduler, UrgentCopy_WaitsForNoMoreSmallCopiesThanTheirBytes) {
  TransferScheduler scheduler(Limits(1, 4));
  scheduler.AddSession(kA, kDevice, 1);
  EnqueueLoads(&scheduler, 9, 2);
  const std::vector<Ticket> granted = scheduler.Grant(At(0));
  EXPECT_EQ(Ids(granted), (std::vector<uint64_t>{0, 1}));
  TransferRequest urgent = Load(100, 100, 2);
  urgent.priority = Priority::kUrgent;
  ASSERT_TRUE(scheduler.Enqueue(kA, urgent, At(0)));
  ASSERT_TRUE(scheduler.Complete(kA, granted[0].id, At(0)));
  EXPECT_EQ(Ids(scheduler.Grant(At(0))), std::vector<uint64_t>{100});
}

TEST(TransferScheduler, ByteLimit_HoldsButOneLargeMayGoAlone) {
  TransferLimits limits;
  limits.bytes_in_flight = 10;
  TransferScheduler scheduler(limits);
  scheduler.AddSession(kA, kDevice, 1);
  ASSERT_TRUE(scheduler.Enqueue(kA, Load(1, 1, 6), At(0)));
  ASSERT_TRUE(scheduler.Enqueue(kA, Load(2, 2, 5), At(0)));
  // Would fit, but may not overtake the second.
  ASSERT_TRUE(scheduler.Enqueue(kA, Load(3, 3, 1), At(0)));
  ASSERT_TRUE(scheduler.Enqueue(kA, Load(4, 4, 100), At(0)));
  std::vector<Ticket> granted = scheduler.Grant(At(0));
  EXPECT_EQ(Ids(granted), std::vector<uint64_t>{1});
  ASSERT_TRUE(scheduler.Complete(kA, granted[0].id, At(0)));
  granted = scheduler.Grant(At(0));
  EXPECT_EQ(Ids(granted), (std::vector<uint64_t>{2, 3}));
  ASSERT_TRUE(scheduler.Complete(kA, granted[0].id, At(0)));
  EXPECT_TRUE(scheduler.Grant(At(0)).empty());
  ASSERT_TRUE(scheduler.Complete(kA, granted[1].id, At(0)));
  EXPECT_EQ(Ids(scheduler.Grant(At(0))), std::vector<uint64_t>{4});
}

TEST(TransferScheduler, TooManyTickets_AreLimitedToTheCompletionWords) {
  TransferLimits limits;
  limits.tickets_in_flight = 1000;
  TransferScheduler scheduler(limits);
  scheduler.AddSession(kA, kDevice, 1);
  for (uint32_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(scheduler.Enqueue(kA, Load(i, i, 1), At(0)));
    TransferRequest store = Load(100 + i, 100 + i, 1);
    store.direction = Direction::kDeviceToHost;
    ASSERT_TRUE(scheduler.Enqueue(kA, store, At(0)));
  }
  std::set<uint16_t> indices;
  std::set<TicketId> ids;
  for (const Ticket& ticket : scheduler.Grant(At(0))) {
    indices.insert(ticket.completion_index);
    ids.insert(ticket.id);
  }
  EXPECT_EQ(indices.size(), shm::kCompletionWords);
  EXPECT_LT(*indices.rbegin(), shm::kCompletionWords);
  EXPECT_EQ(ids.size(), shm::kCompletionWords);
}

TEST(TransferScheduler, Priority_ThenDeadline_ThenArrival) {
  TransferScheduler scheduler(OneAtATime());
  scheduler.AddSession(kA, kDevice, 1);
  scheduler.SetMoment(kA, 10);
  const auto add = [&scheduler](uint64_t id, Priority priority, uint16_t deadline) {
    TransferRequest request = Load(id, static_cast<uint32_t>(id));
    request.priority = priority;
    request.deadline_moment = deadline;
    ASSERT_TRUE(scheduler.Enqueue(kA, request, At(0)));
  };
  add(1, Priority::kBackground, 10);
  add(2, Priority::kNormal, kNoDeadline);
  add(3, Priority::kNormal, 3);  // the moment has passed: in the next iteration
  add(4, Priority::kNormal, 20);
  add(5, Priority::kNormal, 11);
  add(6, Priority::kNormal, 20);
  add(7, Priority::kUrgent, kNoDeadline);
  EXPECT_EQ(Drain(&scheduler, kA, At(0)), (std::vector<uint64_t>{7, 5, 4, 6, 3, 2, 1}));
}

TEST(TransferScheduler, Ageing_OneLevelPerTenMilliseconds) {
  TransferScheduler scheduler(OneAtATime());
  scheduler.AddSession(kA, kDevice, 1);
  TransferRequest background = Load(1, 1);
  background.priority = Priority::kBackground;
  TransferRequest urgent = Load(2, 2);
  urgent.priority = Priority::kUrgent;
  ASSERT_TRUE(scheduler.Enqueue(kA, background, At(0)));
  ASSERT_TRUE(scheduler.Enqueue(kA, urgent, At(19)));
  EXPECT_EQ(Drain(&scheduler, kA, At(19)), (std::vector<uint64_t>{2, 1}));
  ASSERT_TRUE(scheduler.Enqueue(kA, background, At(0)));
  ASSERT_TRUE(scheduler.Enqueue(kA, urgent, At(20)));
  EXPECT_EQ(Drain(&scheduler, kA, At(20)), (std::vector<uint64_t>{1, 2}));
}

// A stream of urgent requests with near deadlines cannot delay a background request for ever.
TEST(TransferScheduler, UrgentFlood_BackgroundIsServedInBoundedTime) {
  TransferScheduler scheduler(OneAtATime());
  scheduler.AddSession(kA, kDevice, 1);
  TransferRequest background = Load(0, 0);
  background.priority = Priority::kBackground;
  ASSERT_TRUE(scheduler.Enqueue(kA, background, At(0)));
  int64_t served_at = -1;
  for (int64_t ms = 0; ms < 1000 && served_at < 0; ++ms) {
    for (uint32_t k = 0; k < 2; ++k) {  // twice the capacity of the link
      TransferRequest urgent = Load(1, static_cast<uint32_t>(1 + 2 * ms + k));
      urgent.priority = Priority::kUrgent;
      urgent.deadline_moment = 0;
      ASSERT_TRUE(scheduler.Enqueue(kA, urgent, At(ms)));
    }
    const std::vector<Ticket> granted = scheduler.Grant(At(ms));
    ASSERT_EQ(granted.size(), 1u);
    if (granted[0].request.request_id == 0) served_at = ms;
    ASSERT_TRUE(scheduler.Complete(kA, granted[0].id, At(0)));
  }
  EXPECT_GE(served_at, 20);
  // By then the waiting urgent requests are two levels older.
  EXPECT_LE(served_at, 70);
}

TEST(TransferScheduler, SameDestination_InOrderWhateverThePriority) {
  TransferScheduler scheduler(OneAtATime());
  scheduler.AddSession(kA, kDevice, 1);
  TransferRequest first = Load(1, 5);
  first.priority = Priority::kBackground;
  TransferRequest second = Load(2, 5);
  second.priority = Priority::kUrgent;
  second.direction = Direction::kDeviceToHost;
  ASSERT_TRUE(scheduler.Enqueue(kA, first, At(0)));
  ASSERT_TRUE(scheduler.Enqueue(kA, second, At(0)));
  ASSERT_TRUE(scheduler.Enqueue(kA, Load(3, 6), At(0)));
  EXPECT_EQ(Drain(&scheduler, kA, At(0)), (std::vector<uint64_t>{3, 1, 2}));
}

TEST(TransferScheduler, FullQueue_RefusesOneMore) {
  TransferLimits limits;
  limits.queued_per_session = 3;
  TransferScheduler scheduler(limits);
  scheduler.AddSession(kA, kDevice, 1);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_TRUE(scheduler.Enqueue(kA, Load(i, i), At(0)));
  EXPECT_FALSE(scheduler.Enqueue(kA, Load(3, 3), At(0)));
  EXPECT_EQ(scheduler.QueuedCount(kA), 3u);
  EXPECT_FALSE(scheduler.Enqueue(kB, Load(1, 1), At(0)));
}

TEST(TransferScheduler, Complete_CountsOncePerCauseAndDirection) {
  TransferScheduler scheduler({});
  scheduler.AddSession(kA, kDevice, 1);
  ASSERT_TRUE(scheduler.Enqueue(kA, Load(1, 1, 100), At(0)));
  const Ticket ticket = scheduler.Grant(At(0))[0];
  ASSERT_NE(scheduler.Find(kA, ticket.id), nullptr);
  EXPECT_EQ(
      scheduler.TotalsOf(kDevice).At(Direction::kHostToDevice, TransferCause::kPrefetch).bytes, 0u);
  EXPECT_TRUE(scheduler.Complete(kA, ticket.id, At(0)));
  EXPECT_FALSE(scheduler.Complete(kA, ticket.id, At(0)));
  EXPECT_EQ(scheduler.Find(kA, ticket.id), nullptr);
  EXPECT_EQ(scheduler.TotalsOf(kA).At(Direction::kHostToDevice, TransferCause::kPrefetch).bytes,
            100u);
  EXPECT_EQ(
      scheduler.TotalsOf(kDevice).At(Direction::kHostToDevice, TransferCause::kPrefetch).transfers,
      1u);
  EXPECT_EQ(
      scheduler.TotalsOf(kDevice).At(Direction::kDeviceToHost, TransferCause::kPrefetch).bytes, 0u);
}

TEST(TransferScheduler, Timeout_MarksSlowUntilTheTicketEnds) {
  TransferScheduler scheduler({});
  scheduler.AddSession(kA, kDevice, 1);
  ASSERT_TRUE(scheduler.Enqueue(kA, Load(1, 1), At(0)));
  const Ticket ticket = scheduler.Grant(At(100))[0];
  EXPECT_EQ(*scheduler.NextTimeout(), At(5100));
  EXPECT_EQ(scheduler.MarkOverdue(At(5099)), 0u);
  EXPECT_FALSE(scheduler.IsSlow(kA));
  EXPECT_EQ(scheduler.MarkOverdue(At(5100)), 1u);
  EXPECT_EQ(scheduler.MarkOverdue(At(9999)), 0u);
  EXPECT_TRUE(scheduler.IsSlow(kA));
  EXPECT_FALSE(scheduler.NextTimeout().has_value());
  EXPECT_EQ(scheduler.OverdueTickets(kDevice), 1u);
  // The ticket stays in flight.
  EXPECT_EQ(scheduler.FlightOf(kA, Direction::kHostToDevice).tickets, 1u);
  ASSERT_TRUE(scheduler.Complete(kA, ticket.id, At(0)));
  EXPECT_FALSE(scheduler.IsSlow(kA));
}

TEST(TransferScheduler, Link_IsBusyWhileAnythingIsUnderWay) {
  TransferScheduler scheduler(OneAtATime());
  scheduler.AddSession(kA, kDevice, 1);
  scheduler.AddSession(kB, kDevice, 1);
  const auto link = [&](int64_t at) {
    return scheduler.ReadLink(kDevice, Direction::kHostToDevice, At(at));
  };
  ASSERT_TRUE(scheduler.Enqueue(kA, Load(1, 1, 10), At(0)));
  ASSERT_TRUE(scheduler.Enqueue(kA, Load(2, 2, 20), At(0)));
  EXPECT_EQ(link(50).queued, 2u);
  EXPECT_EQ(link(50).queued_bytes, 30u);
  EXPECT_EQ(link(50).busy, Duration::Milliseconds(0));
  const Ticket first = scheduler.Grant(At(100))[0];
  ASSERT_TRUE(scheduler.Enqueue(kB, Load(3, 3, 40), At(150)));
  const Ticket other = scheduler.Grant(At(150))[0];
  EXPECT_EQ(link(180).queued_bytes, 20u);
  EXPECT_EQ(link(180).flight.bytes, 50u);
  EXPECT_EQ(link(180).busy, Duration::Milliseconds(80)) << "two at once count once";
  ASSERT_TRUE(scheduler.Complete(kA, first.id, At(200)));
  ASSERT_TRUE(scheduler.Complete(kB, other.id, At(260)));
  EXPECT_EQ(link(1000).busy, Duration::Milliseconds(160));
  EXPECT_EQ(link(1000).waits.sum(), Duration::Milliseconds(100));
  EXPECT_EQ(link(1000).copies.sum(), Duration::Milliseconds(100 + 110));
  ASSERT_EQ(scheduler.Grant(At(1000)).size(), 1u);
  scheduler.RemoveSession(kA, At(1040));
  EXPECT_EQ(link(2000).busy, Duration::Milliseconds(200));
  EXPECT_EQ(link(2000).queued + link(2000).flight.tickets, 0u);
  EXPECT_EQ(scheduler.ReadLink(kDevice, Direction::kDeviceToHost, At(2000)).busy, Duration());
}

TEST(TransferScheduler, QueuedRequestsOfASessionThatEnds_AreQueuedNoMore) {
  TransferScheduler scheduler(OneAtATime());
  scheduler.AddSession(kA, kDevice, 1);
  ASSERT_TRUE(scheduler.Enqueue(kA, Load(1, 1, 10), At(0)));
  scheduler.RemoveSession(kA, At(1));
  const LinkReading link = scheduler.ReadLink(kDevice, Direction::kHostToDevice, At(1));
  EXPECT_EQ(link.queued, 0u);
  EXPECT_EQ(link.queued_bytes, 0u);
}

TEST(TransferScheduler, NextTimeout_IsOfTheOldestTicketInFlight) {
  TransferScheduler scheduler({});
  scheduler.AddSession(kA, kDevice, 1);
  scheduler.AddSession(kB, kDevice, 1);
  ASSERT_TRUE(scheduler.Enqueue(kB, Load(1, 1), At(0)));
  ASSERT_EQ(scheduler.Grant(At(100)).size(), 1u);
  ASSERT_TRUE(scheduler.Enqueue(kA, Load(2, 2), At(200)));
  ASSERT_EQ(scheduler.Grant(At(200)).size(), 1u);
  EXPECT_EQ(*scheduler.NextTimeout(), At(5100));
  EXPECT_EQ(scheduler.MarkOverdue(At(5100)), 1u);
  EXPECT_EQ(*scheduler.NextTimeout(), At(5200));
}

TEST(TransferScheduler, RemoveSession_ReturnsEverythingAndItsCredits) {
  TransferLimits limits = OneAtATime();
  limits.link_bytes_in_flight = kMiB;
  TransferScheduler scheduler(limits);
  scheduler.AddSession(kA, kDevice, 1);
  scheduler.AddSession(kB, kDevice, 1);
  ASSERT_TRUE(scheduler.Enqueue(kA, Load(1, 1), At(0)));
  ASSERT_TRUE(scheduler.Enqueue(kA, Load(2, 2), At(0)));
  ASSERT_TRUE(scheduler.Enqueue(kA, Load(4, 2), At(0)));  // waits behind the previous request
  ASSERT_EQ(scheduler.Grant(At(0)).size(), 1u);
  ASSERT_TRUE(scheduler.Enqueue(kB, Load(3, 1), At(0)));
  EXPECT_TRUE(scheduler.Grant(At(0)).empty());  // the link is full
  EXPECT_EQ(scheduler.RemoveSession(kA, At(0)).size(), 3u);
  EXPECT_EQ(Ids(scheduler.Grant(At(0))), std::vector<uint64_t>{3});
  EXPECT_TRUE(scheduler.RemoveSession(kA, At(0)).empty());
}

// If the dead session's bytes stayed on the link, they would stay until no other has tickets in
// flight.
TEST(TransferScheduler, RemoveSession_LeavesOnTheLinkWhatOthersHaveInFlight) {
  TransferLimits limits;
  limits.link_bytes_in_flight = 2 * kMiB;
  TransferScheduler scheduler(limits);
  scheduler.AddSession(kA, kDevice, 1);
  scheduler.AddSession(kB, kDevice, 1);
  ASSERT_TRUE(scheduler.Enqueue(kA, Load(1, 1), At(0)));
  ASSERT_TRUE(scheduler.Enqueue(kB, Load(2, 1), At(0)));
  ASSERT_EQ(scheduler.Grant(At(0)).size(), 2u);
  EXPECT_EQ(scheduler.FlightOf(kDevice, Direction::kHostToDevice).bytes, 2 * kMiB);
  EXPECT_EQ(scheduler.RemoveSession(kA, At(0)).size(), 1u);
  EXPECT_EQ(scheduler.FlightOf(kDevice, Direction::kHostToDevice).bytes, kMiB);
  EXPECT_EQ(scheduler.FlightOf(kDevice, Direction::kHostToDevice).tickets, 1u);
  ASSERT_TRUE(scheduler.Enqueue(kB, Load(3, 2), At(0)));
  EXPECT_EQ(Ids(scheduler.Grant(At(0))), std::vector<uint64_t>{3});
}

// Both sessions always have work. The link carries one ticket at a time. The weights are 3 and 1.
TEST(TransferScheduler, SharedLink_IsDividedByWeight) {
  TransferLimits limits;
  limits.link_bytes_in_flight = kMiB;
  TransferScheduler scheduler(limits);
  scheduler.AddSession(kA, kDevice, 3);
  scheduler.AddSession(kB, kDevice, 1);
  std::map<SessionId, int> granted_to;
  for (uint32_t i = 0; i < 400; ++i) {
    for (const SessionId session : {kA, kB}) {
      while (scheduler.QueuedCount(session) < 2) {
        ASSERT_TRUE(scheduler.Enqueue(session, Load(i, i), At(0)));
      }
    }
    const std::vector<Ticket> granted = scheduler.Grant(At(0));
    ASSERT_EQ(granted.size(), 1u);
    ++granted_to[granted[0].session];
    ASSERT_TRUE(scheduler.Complete(granted[0].session, granted[0].id, At(0)));
  }
  EXPECT_NEAR(granted_to[kA], 300, 2);
  EXPECT_NEAR(granted_to[kB], 100, 2);
}

// A session that was idle gets its half from now on, without credit for the past.
TEST(TransferScheduler, SharedLink_IdleSessionSavesNoCredit) {
  TransferLimits limits;
  limits.link_bytes_in_flight = kMiB;
  TransferScheduler scheduler(limits);
  scheduler.AddSession(kA, kDevice, 1);
  scheduler.AddSession(kB, kDevice, 1);
  for (uint32_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(scheduler.Enqueue(kA, Load(i, i), At(0)));
    Drain(&scheduler, kA, At(0));
  }
  int of_a = 0;
  for (uint32_t i = 0; i < 20; ++i) {
    for (const SessionId session : {kA, kB}) {
      while (scheduler.QueuedCount(session) < 2) {
        ASSERT_TRUE(scheduler.Enqueue(session, Load(i, i), At(0)));
      }
    }
    const Ticket ticket = scheduler.Grant(At(0)).at(0);
    of_a += ticket.session == kA;
    ASSERT_TRUE(scheduler.Complete(ticket.session, ticket.id, At(0)));
  }
  EXPECT_NEAR(of_a, 10, 1);
}

// A session has its turn with a large request, which waits for the link. Small requests of other
// sessions do not fill the link for ever.
TEST(TransferScheduler, SharedLink_LargeRequestIsNotStarved) {
  TransferLimits limits;
  limits.link_bytes_in_flight = 4 * kMiB;
  TransferScheduler scheduler(limits);
  scheduler.AddSession(kA, kDevice, 1);
  scheduler.AddSession(kB, kDevice, 1);
  std::vector<Ticket> in_flight;
  bool served = false;
  for (uint32_t i = 0; i < 50 && !served; ++i) {
    while (scheduler.QueuedCount(kA) < 8) {
      ASSERT_TRUE(scheduler.Enqueue(kA, Load(i, 100 * i + scheduler.QueuedCount(kA)), At(0)));
    }
    if (i == 1) {
      ASSERT_TRUE(scheduler.Enqueue(kB, Load(7777, 1, 4 * kMiB), At(0)));
    }
    for (const Ticket& ticket : scheduler.Grant(At(0))) {
      served = served || ticket.session == kB;
      in_flight.push_back(ticket);
    }
    ASSERT_LE(scheduler.FlightOf(kDevice, Direction::kHostToDevice).bytes, 4 * kMiB);
    if (in_flight.empty()) continue;
    ASSERT_TRUE(scheduler.Complete(in_flight.front().session, in_flight.front().id, At(0)));
    in_flight.erase(in_flight.begin());
  }
  EXPECT_TRUE(served);
}

TEST(TransferScheduler, SharedLink_OfAnotherDeviceIsFree) {
  TransferLimits limits;
  limits.link_bytes_in_flight = kMiB;
  limits.bytes_in_flight = kMiB;
  TransferScheduler scheduler(limits, 2);
  constexpr DeviceIndex kOther{1};
  scheduler.AddSession(kA, kDevice, 1);
  scheduler.AddSession(kB, kOther, 1);
  const SessionId same{3};
  scheduler.AddSession(same, kDevice, 1);
  ASSERT_TRUE(scheduler.Enqueue(kA, Load(1, 1), At(0)));
  ASSERT_TRUE(scheduler.Enqueue(same, Load(2, 1), At(0)));
  ASSERT_TRUE(scheduler.Enqueue(kB, Load(3, 1), At(0)));
  const std::vector<Ticket> granted = scheduler.Grant(At(0));
  EXPECT_EQ(Ids(granted), (std::vector<uint64_t>{1, 3}));  // 2 waits for 1
  EXPECT_EQ(scheduler.FlightOf(kDevice, Direction::kHostToDevice).bytes, kMiB);
  EXPECT_EQ(scheduler.FlightOf(kOther, Direction::kHostToDevice).bytes, kMiB);
  ASSERT_TRUE(scheduler.Complete(kB, granted[1].id, At(0)));
  EXPECT_EQ(scheduler.TotalsOf(kOther).At(Direction::kHostToDevice, TransferCause::kPrefetch).bytes,
            kMiB);
  EXPECT_EQ(
      scheduler.TotalsOf(kDevice).At(Direction::kHostToDevice, TransferCause::kPrefetch).bytes, 0u);
  EXPECT_TRUE(scheduler.Grant(At(0)).empty());
  scheduler.RemoveSession(kA, At(0));
  EXPECT_EQ(Ids(scheduler.Grant(At(0))), (std::vector<uint64_t>{2}));
}

TEST(TransferScheduler, Overdue_IsCountedOnItsDevice) {
  TransferScheduler scheduler({}, 2);
  scheduler.AddSession(kA, DeviceIndex{1}, 1);
  ASSERT_TRUE(scheduler.Enqueue(kA, Load(1, 1), At(0)));
  ASSERT_EQ(scheduler.Grant(At(0)).size(), 1u);
  EXPECT_EQ(scheduler.MarkOverdue(At(5000)), 1u);
  EXPECT_EQ(scheduler.OverdueTickets(DeviceIndex{1}), 1u);
  EXPECT_EQ(scheduler.OverdueTickets(DeviceIndex{0}), 0u);
}

TEST(TransferScheduler, RandomUse_NeverExceedsALimitAndServesAll) {
  TransferLimits limits = Limits(3);
  limits.bytes_in_flight = 50;
  limits.link_bytes_in_flight = 80;
  TransferScheduler scheduler(limits);
  std::mt19937 random(5);
  const std::vector<SessionId> sessions = {SessionId{1}, SessionId{2}, SessionId{3}};
  for (const SessionId session : sessions) scheduler.AddSession(session, kDevice, 1 + random() % 4);
  std::vector<Ticket> in_flight;
  std::map<std::pair<SessionId, ChunkId>, uint64_t> last_of_destination;
  std::map<SessionId, std::set<uint16_t>> indices_in_flight;
  uint64_t asked = 0;
  uint64_t granted = 0;
  for (int step = 0; step < 20000 || granted < asked; ++step) {
    ASSERT_LT(step, 200000);
    const Time now = Time::FromNanoseconds(step * int64_t{100'000});
    if (step < 20000 && random() % 2 == 0) {
      TransferRequest request = Load(asked + 1, random() % 10, 1 + random() % 60);
      request.direction = random() % 2 ? Direction::kHostToDevice : Direction::kDeviceToHost;
      request.priority = static_cast<Priority>(random() % 3);
      request.deadline_moment = random() % 2 ? kNoDeadline : random() % 20;
      asked += scheduler.Enqueue(sessions[random() % 3], request, now);
    }
    for (const Ticket& ticket : scheduler.Grant(now)) {
      uint64_t& last = last_of_destination[{ticket.session, ticket.request.destination}];
      ASSERT_GT(ticket.request.request_id, last);
      last = ticket.request.request_id;
      ASSERT_LT(ticket.completion_index, shm::kCompletionWords);
      ASSERT_TRUE(indices_in_flight[ticket.session].insert(ticket.completion_index).second);
      in_flight.push_back(ticket);
      ++granted;
    }
    for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost}) {
      const InFlight link = scheduler.FlightOf(kDevice, direction);
      ASSERT_TRUE(link.bytes <= 80 || link.tickets == 1);
      for (const SessionId session : sessions) {
        const InFlight flight = scheduler.FlightOf(session, direction);
        ASSERT_LE(flight.tickets, 3u);
        ASSERT_TRUE(flight.bytes <= 50 || flight.tickets == 1);
      }
    }
    if (!in_flight.empty() && random() % 2 == 0) {
      const size_t k = random() % in_flight.size();
      ASSERT_TRUE(scheduler.Complete(in_flight[k].session, in_flight[k].id, At(0)));
      indices_in_flight[in_flight[k].session].erase(in_flight[k].completion_index);
      in_flight.erase(in_flight.begin() + k);
    }
  }
  EXPECT_EQ(granted, asked);
  EXPECT_GT(asked, 5000u);
}

}  // namespace
}  // namespace geminid::core
