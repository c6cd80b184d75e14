#include "daemon/core/records/session_books.h"

#include <cstring>

#include "base/mapping.h"
#include "base/memfd.h"
#include "base/pages.h"
#include "gtest/gtest.h"

namespace geminid::core {
namespace {

class SessionBooksTest : public ::testing::Test {
 protected:
  static SessionFacts Facts() {
    SessionFacts facts;
    facts.id = SessionId{7};
    facts.spec.tenant = "cgroup:/docker/0123";
    facts.spec.job = "llm";
    facts.spec.run = "run-1";
    facts.spec.client = "trainer 1.0";
    facts.spec.rank = 3;
    facts.spec.world_size = 8;
    facts.spec.local_rank = 1;
    facts.spec.local_world_size = 2;
    facts.spec.device = shm::kAnyDevice;
    facts.spec.uid = 1000;
    facts.spec.pid = 4711;
    facts.spec.death_policy = shm::DeathPolicy::kKeep;
    facts.device = DeviceIndex{1};
    facts.opened_at = Time::FromNanoseconds(99);
    facts.token[0] = 0xab;
    facts.token[31] = 0xcd;
    return facts;
  }
  static TransferRequest Request(uint64_t id) {
    return {.request_id = id,
            .direction = Direction::kDeviceToHost,
            .bytes = 1 << 20,
            .priority = Priority::kUrgent,
            .cause = TransferCause::kWriteBack,
            .deadline_moment = 12,
            .source = ChunkId{4},
            .destination = ChunkId{5},
            .source_offset = 64,
            .destination_offset = 128,
            .flags = shm::kDropSourceWhenDone,
            .dirty_epoch = 9};
  }
  SessionBooks Create() { return *SessionBooks::Create(memory(), Facts()); }
  SessionBooks Open() { return *SessionBooks::Open(memory()); }
  std::span<std::byte> memory() { return {mapping_.data(), mapping_.bytes()}; }

  const uint64_t bytes_ = base::RoundUpToPage(SessionBooks::Bytes());
  const base::UniqueFd fd_ = *base::CreateSealedMemfd("books", bytes_);
  const base::Mapping mapping_ = *base::Mapping::Map(fd_, bytes_);
};

TEST_F(SessionBooksTest, Facts_AreReadAgain) {
  Create();
  const absl::StatusOr<SessionFacts> facts = Open().Facts();
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->id, SessionId{7});
  EXPECT_EQ(facts->device, DeviceIndex{1});
  EXPECT_EQ(facts->opened_at, Time::FromNanoseconds(99));
  EXPECT_EQ(facts->token, Facts().token);
  EXPECT_EQ(facts->spec.tenant, "cgroup:/docker/0123");
  EXPECT_EQ(facts->spec.job, "llm");
  EXPECT_EQ(facts->spec.run, "run-1");
  EXPECT_EQ(facts->spec.client, "trainer 1.0");
  EXPECT_EQ(facts->spec.rank, 3);
  EXPECT_EQ(facts->spec.world_size, 8);
  EXPECT_EQ(facts->spec.local_rank, 1);
  EXPECT_EQ(facts->spec.local_world_size, 2);
  EXPECT_EQ(facts->spec.device, shm::kAnyDevice);
  EXPECT_EQ(facts->spec.uid, 1000u);
  EXPECT_EQ(facts->spec.pid, 4711);
  EXPECT_EQ(facts->spec.death_policy, shm::DeathPolicy::kKeep);
}

TEST_F(SessionBooksTest, Words_BeginAsNothingAndAreReadAgain) {
  SessionBooks books = Create();
  EXPECT_FALSE(books.welcomed());
  EXPECT_FALSE(books.barred());
  EXPECT_EQ(books.KeptUntil(), std::nullopt);
  EXPECT_EQ(books.Job(), std::nullopt);
  books.SetWelcomed();
  books.SetBarred();
  books.SetArena(1 << 30);
  books.SetWorkspace(4096);
  books.SetMoment(17);
  books.SetKeptUntil(Time::FromNanoseconds(5));
  books.SetName(ChunkId{3}, "layer 3");
  books.SetName(ChunkId{4}, std::string(128, 'x'));
  const SessionBooks again = Open();
  EXPECT_TRUE(again.welcomed());
  EXPECT_TRUE(again.barred());
  EXPECT_EQ(again.arena_bytes(), uint64_t{1} << 30);
  EXPECT_EQ(again.workspace_bytes(), 4096u);
  EXPECT_EQ(again.moment(), 17u);
  EXPECT_EQ(again.KeptUntil(), Time::FromNanoseconds(5));
  EXPECT_EQ(again.NameOf(ChunkId{3}), "layer 3");
  EXPECT_EQ(again.NameOf(ChunkId{4}), std::string(128, 'x'));
  EXPECT_EQ(again.NameOf(ChunkId{5}), "");
  books.SetAttached();
  EXPECT_EQ(Open().KeptUntil(), std::nullopt);
}

TEST_F(SessionBooksTest, Job_IsReadAgainAsItStandsNow) {
  SessionBooks books = Create();
  JobNote note;
  note.job = JobId{6};
  note.run = "run-1";
  note.ask = {.rank = 3,
              .ranks = 2,
              .priority = -4,
              .device = DeviceIndex{1},
              .device_bytes = 10,
              .host_bytes = 20,
              .preemptible = true,
              .may_wait = false};
  note.weight = 5;
  books.SetJob(note);
  books.SetStanding(JobState::kYielding, true, /*held=*/true, Time::FromNanoseconds(8));
  const std::optional<JobNote> again = Open().Job();
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->job, JobId{6});
  EXPECT_EQ(again->run, "run-1");
  EXPECT_TRUE(again->held);
  EXPECT_EQ(again->ask.rank, 3);
  EXPECT_EQ(again->ask.ranks, 2u);
  EXPECT_EQ(again->ask.priority, -4);
  EXPECT_EQ(again->ask.device, DeviceIndex{1});
  EXPECT_EQ(again->ask.device_bytes, 10u);
  EXPECT_EQ(again->ask.host_bytes, 20u);
  EXPECT_TRUE(again->ask.preemptible);
  EXPECT_FALSE(again->ask.may_wait);
  EXPECT_EQ(again->weight, 5u);
  EXPECT_EQ(again->state, JobState::kYielding);
  EXPECT_TRUE(again->yielded);
  EXPECT_EQ(again->since, Time::FromNanoseconds(8));
  books.ClearJob();
  EXPECT_EQ(Open().Job(), std::nullopt);
}

TEST_F(SessionBooksTest, Transfers_AreReadAgainInTheOrderTheyCame) {
  SessionBooks books = Create();
  const uint32_t first = *books.AddTransfer(Request(1), Time::FromNanoseconds(1));
  const uint32_t second = *books.AddTransfer(Request(2), Time::FromNanoseconds(2));
  Ticket ticket;
  ticket.id = TicketId{77};
  ticket.completion_index = 5;
  ticket.granted_at = Time::FromNanoseconds(9);
  books.Grant(second, ticket);
  books.RemoveTransfer(first);
  *books.AddTransfer(Request(3), Time::FromNanoseconds(3));  // takes the place of the first
  EXPECT_FALSE(books.HasTransfer(1));
  EXPECT_TRUE(books.HasTransfer(3));
  SessionBooks again = Open();
  std::vector<NotedTransfer> noted = again.Transfers();
  ASSERT_EQ(noted.size(), 2u);
  EXPECT_EQ(noted[0].request.request_id, 2u);
  EXPECT_EQ(noted[0].ticket, TicketId{77});
  EXPECT_EQ(noted[0].completion_index, 5u);
  EXPECT_EQ(noted[0].since, Time::FromNanoseconds(9));
  EXPECT_EQ(noted[1].request.request_id, 3u);
  EXPECT_EQ(noted[1].ticket, kNoTicket);
  EXPECT_EQ(noted[1].since, Time::FromNanoseconds(3));
  const TransferRequest& request = noted[0].request;
  const TransferRequest expected = Request(2);
  EXPECT_EQ(request.direction, expected.direction);
  EXPECT_EQ(request.bytes, expected.bytes);
  EXPECT_EQ(request.priority, expected.priority);
  EXPECT_EQ(request.cause, expected.cause);
  EXPECT_EQ(request.deadline_moment, expected.deadline_moment);
  EXPECT_EQ(request.source, expected.source);
  EXPECT_EQ(request.destination, expected.destination);
  EXPECT_EQ(request.source_offset, expected.source_offset);
  EXPECT_EQ(request.destination_offset, expected.destination_offset);
  EXPECT_EQ(request.flags, expected.flags);
  EXPECT_EQ(request.dirty_epoch, expected.dirty_epoch);
  // Order numbers continue.
  *again.AddTransfer(Request(4), Time::FromNanoseconds(4));
  EXPECT_EQ(Open().Transfers().back().request.request_id, 4u);
  again.RemoveAllTransfers();
  EXPECT_TRUE(Open().Transfers().empty());
}

TEST_F(SessionBooksTest, AllPlacesTaken_AreNoPlace) {
  SessionBooks books = Create();
  for (uint32_t i = 0; i < kBooksTransfers; ++i) {
    ASSERT_TRUE(books.AddTransfer(Request(i), Time()).has_value());
  }
  EXPECT_FALSE(books.AddTransfer(Request(9), Time()).has_value());
  EXPECT_EQ(Open().Transfers().size(), kBooksTransfers);
}

TEST_F(SessionBooksTest, BooksOfAnotherRelease_AreRefused) {
  Create();
  const uint32_t version = kBooksVersion + 1;
  std::memcpy(mapping_.data() + 4, &version, sizeof(version));
  EXPECT_EQ(SessionBooks::Open(memory()).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(SessionBooksTest, TornOrForeignBooks_AreDataLoss) {
  EXPECT_EQ(SessionBooks::Open(memory()).status().code(), absl::StatusCode::kDataLoss);
  Create();
  char* const bytes = reinterpret_cast<char*>(mapping_.data());
  bytes[std::string_view(bytes, 4000).find("cgroup")] = 'C';
  EXPECT_EQ(SessionBooks::Open(memory()).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(SessionBooksTest, TenantThatIsTooLong_IsRefused) {
  SessionFacts facts = Facts();
  facts.spec.tenant = std::string(kMaxTenantBytes, 'x');
  EXPECT_EQ(SessionBooks::Create(memory(), facts).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SessionBooks::Create(memory().first(4096), Facts()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace geminid::core
