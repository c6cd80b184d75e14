#include "collectives/shm/rendezvous.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <tuple>

#include "base/pages.h"
#include "base/unique_fd.h"
#include "collectives/shm/segment.h"
#include "collectives/shm/seqpacket.h"
#include "collectives/shm/shm_communicator.h"
#include "collectives/shm/shm_group.h"
#include "geminid/connect.h"
#include "tests/collectives/world.h"

namespace geminid::collectives {
namespace {

constexpr absl::Duration kShort = absl::Milliseconds(200);
constexpr absl::Duration kLong = absl::Seconds(30);

TEST(Rendezvous, MissingRanks_AreNamed) {
  const auto status = ConnectShm(UniqueName(), 0, 3, {.connect_timeout = kShort}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find("ranks 1, 2 of 3 did not come"), absl::string_view::npos)
      << status;
}

TEST(Rendezvous, MissingRankZero_IsNamed) {
  const auto status = ConnectShm(UniqueName(), 1, 2, {.connect_timeout = kShort}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find("rank 0 did not come"), absl::string_view::npos) << status;
}

TEST(Rendezvous, StrangersAreRefused_AndTheGroupStillMeets) {
  const std::string name = UniqueName();
  auto zero = std::async(std::launch::async,
                         [&] { return ConnectShm(name, 0, 2, {.connect_timeout = kLong}); });
  const auto wrong_size = ConnectShm(name, 1, 3, {.connect_timeout = kLong}).status();
  EXPECT_EQ(wrong_size.code(), absl::StatusCode::kInvalidArgument) << wrong_size;
  EXPECT_NE(wrong_size.message().find("3 ranks, rank 0 says 2"), absl::string_view::npos)
      << wrong_size;
  auto socket = ConnectAbstract(name);
  ASSERT_TRUE(socket.ok()) << socket.status();
  const char noise[] = "not a hello";
  EXPECT_TRUE(SendRecord(socket->get(), std::as_bytes(std::span(noise)), {}).ok());
  auto one = ConnectShm(name, 1, 2, {.connect_timeout = kLong});
  EXPECT_TRUE(one.ok()) << one.status();
  auto first = zero.get();
  EXPECT_TRUE(first.ok()) << first.status();
}

TEST(Rendezvous, SecondOfARank_IsRefusedAndTheFirstStays) {
  const std::string name = UniqueName();
  const auto connect = [&name](int rank) {
    return std::async(std::launch::async, [&name, rank] {
      return ConnectShm(name, rank, 3, {.connect_timeout = kLong}).status();
    });
  };
  auto zero = connect(0);
  auto one = connect(1);
  auto another = connect(1);
  // The second of the two is refused, and the other waits for rank 2.
  while (one.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready &&
         another.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
  }
  auto two = connect(2);
  const absl::Status statuses[] = {one.get(), another.get()};
  const absl::Status& refused = statuses[statuses[0].ok() ? 1 : 0];
  EXPECT_TRUE(statuses[0].ok() || statuses[1].ok());
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
  EXPECT_NE(refused.message().find("rank 1 is already here"), absl::string_view::npos) << refused;
  EXPECT_EQ(zero.get(), absl::OkStatus());
  EXPECT_EQ(two.get(), absl::OkStatus());
}

TEST(Rendezvous, RankThatIsNone_IsRefusedByRankZero) {
  const std::string name = UniqueName();
  auto zero = std::async(std::launch::async, [&name] {
    return ConnectShm(name, 0, 2, {.connect_timeout = kLong}).status();
  });
  const auto status = MeetOnHost(name, 2, 2, -1, kLong).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("rank 2 is not one of the 1 others"), absl::string_view::npos)
      << status;
  EXPECT_TRUE(ConnectShm(name, 1, 2, {.connect_timeout = kLong}).ok());
  EXPECT_EQ(zero.get(), absl::OkStatus());
}

TEST(Rendezvous, SecondRankZero_IsToldWhy) {
  const std::string name = UniqueName();
  auto listener = ListenAbstract(name, 1);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto status = ConnectShm(name, 0, 2, {.connect_timeout = kShort}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(status.message().find("GEMINID_JOB_ID"), absl::string_view::npos) << status;
}

TEST(Segment, ForeignMemory_IsRefused) {
  auto segment = Segment::Create({.world_size = 2, .slots = 2, .piece_bytes = 4096});
  ASSERT_TRUE(segment.ok()) << segment.status();
  auto again = [&] { return base::UniqueFd(::dup(segment->fd())); };
  EXPECT_TRUE(Segment::Open(again(), 2).ok());
  EXPECT_EQ(Segment::Open(again(), 3).status().code(), absl::StatusCode::kInvalidArgument);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  base::UniqueFd read_end(ends[0]), write_end(ends[1]);
  EXPECT_EQ(Segment::Open(std::move(read_end), 2).status().code(),
            absl::StatusCode::kInvalidArgument);
  // Damages the header, byte by byte.
  std::vector<char> header(64);
  ASSERT_EQ(::pread(segment->fd(), header.data(), header.size(), 0), 64);
  for (size_t i = 0; i < 20; ++i) {
    std::vector<char> damaged = header;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x40);
    ASSERT_EQ(::pwrite(segment->fd(), damaged.data(), damaged.size(), 0), 64);
    EXPECT_FALSE(Segment::Open(again(), 2).ok()) << "byte " << i;
  }
}

// A rank that shrank the segment would kill the others with SIGBUS. A rank that grew it would take
// memory that no account has.
TEST(Segment, ItsSize_CannotBeChangedByAnybody) {
  auto segment = Segment::Create({.world_size = 2, .slots = 2, .piece_bytes = 4096});
  ASSERT_TRUE(segment.ok()) << segment.status();
  struct stat file = {};
  ASSERT_EQ(::fstat(segment->fd(), &file), 0);
  EXPECT_EQ(::ftruncate(segment->fd(), file.st_size - base::kPageBytes), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(segment->fd(), file.st_size + base::kPageBytes), -1);
  EXPECT_EQ(errno, EPERM);
  const int seals = ::fcntl(segment->fd(), F_GET_SEALS);
  EXPECT_EQ(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

TEST(Segment, UnsealedMemory_IsRefused) {
  auto segment = Segment::Create({.world_size = 2, .slots = 2, .piece_bytes = 4096});
  ASSERT_TRUE(segment.ok()) << segment.status();
  struct stat file = {};
  ASSERT_EQ(::fstat(segment->fd(), &file), 0);
  std::vector<char> content(static_cast<size_t>(file.st_size));
  ASSERT_EQ(::pread(segment->fd(), content.data(), content.size(), 0), file.st_size);
  base::UniqueFd unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::write(unsealed.get(), content.data(), content.size()), file.st_size);
  EXPECT_EQ(Segment::Open(base::UniqueFd(::dup(unsealed.get())), 2).status().code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(::fcntl(unsealed.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_TRUE(Segment::Open(base::UniqueFd(::dup(unsealed.get())), 2).ok());
}

TEST(Segment, UnreasonableShape_IsRefused) {
  EXPECT_FALSE(Segment::Create({.world_size = 0, .slots = 2, .piece_bytes = 4096}).ok());
  EXPECT_FALSE(Segment::Create({.world_size = 129, .slots = 2, .piece_bytes = 1 << 20}).ok());
  EXPECT_FALSE(Segment::Create({.world_size = 2, .slots = 1, .piece_bytes = 4096}).ok());
  EXPECT_FALSE(Segment::Create({.world_size = 2, .slots = 2, .piece_bytes = 4097}).ok());
  EXPECT_FALSE(Segment::Create({.world_size = 128, .slots = 2, .piece_bytes = 4096}).ok());
}

// The writer was killed during its write, or is malicious.
TEST(ShmGroup, FailureRecordThatMakesNoSense_IsAFailureWithoutItsWords) {
  for (const auto& [state, code, length] : {std::tuple<uint32_t, int32_t, uint32_t>{2, 1, 1u << 30},
                                            {2, 0, 3},
                                            {2, -1, 3},
                                            {3, 1, 3}}) {
    auto segment = Segment::Create({.world_size = 2, .slots = 2, .piece_bytes = 4096});
    ASSERT_TRUE(segment.ok()) << segment.status();
    const ShmGroup group(*std::move(segment), {}, 0, absl::ZeroDuration());
    FailureRecord& record = group.segment().failure();
    record.code = code;
    record.length = length;
    record.state.store(state);
    const absl::Status status = group.failure();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << state << " " << code;
    EXPECT_EQ(status.message(), "a rank failed and died before it could say why");
  }
}

TEST(ShmGroup, FirstFailure_IsTheOnlyOne) {
  auto segment = Segment::Create({.world_size = 2, .slots = 2, .piece_bytes = 4096});
  ASSERT_TRUE(segment.ok()) << segment.status();
  ShmGroup group(*std::move(segment), {}, 0, absl::ZeroDuration());
  const absl::Status first = absl::AbortedError("the cause");
  EXPECT_EQ(group.Fail(first), first);
  EXPECT_EQ(group.Fail(absl::DeadlineExceededError("its echo")), first);
  EXPECT_EQ(group.failure(), first);
}

TEST(Duplicate, OfAGroupThatIsAborted_IsNotWaitedFor) {
  const std::string name = UniqueName();
  auto one = std::async(std::launch::async, [&] {
    auto group = ConnectShm(name, 1, 2, {.connect_timeout = kLong});
    return group.ok() ? (*group)->Duplicate("more").status() : group.status();
  });
  auto group = ConnectShm(name, 0, 2, {.connect_timeout = kLong});
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ(one.wait_for(absl::ToChronoNanoseconds(kShort)), std::future_status::timeout);
  (*group)->Abort("it has no memory");
  const absl::Status status = one.get();
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_NE(status.message().find("it has no memory"), absl::string_view::npos) << status;
}

TEST(Connect, OneProcess_NeedsNobody) {
  auto c = Connect(RankInfo{});
  ASSERT_TRUE(c.ok()) << c.status();
  std::vector<float> values = {1, 2};
  EXPECT_EQ((*c)->AllReduce(values, values), absl::OkStatus());
  EXPECT_EQ((*c)->WorldSize(), 1);
}

TEST(Connect, SeveralHostsWithoutMaster_IsRefused) {
  const auto status = Connect(RankInfo{.rank = 1, .world_size = 2}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("MASTER_ADDR"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace geminid::collectives
