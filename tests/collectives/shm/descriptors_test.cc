// Ranks that may have or send few descriptors meet. The test does not run as root, for whom the
// kernel does not count descriptors in flight.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "collectives/shm/seqpacket.h"
#include "collectives/shm/shm_communicator.h"
#include "tests/collectives/forked_ranks.h"
#include "tests/collectives/operations.h"
#include "tests/collectives/world.h"

namespace geminid::collectives {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr uid_t kNobody = 65534;
constexpr absl::Duration kLong = absl::Seconds(60);

void BecomeNobody() {
  if (::getuid() != 0) return;
  EXPECT_EQ(::setresuid(kNobody, kNobody, kNobody), 0);
}

void LimitDescriptors(rlim_t most) {
  const rlimit limit = {most, most};
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

// The number that the next descriptor will have.
rlim_t NextDescriptor() {
  const base::UniqueFd next(::dup(0));
  return static_cast<rlim_t>(next.get());
}

// Leaves descriptors in flight until this process ends.
void LeaveOnTheirWay(size_t count) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  const std::byte record{};
  const absl::Status sent =
      SendRecord(ends[0], std::span(&record, 1), std::vector<int>(count, ends[1]));
  EXPECT_TRUE(sent.ok()) << sent;
}

// The result of each rank that meets the others after `prepare`.
std::vector<std::string> Meet(int world_size, const std::function<void(int rank)>& prepare) {
  const std::string name = UniqueName();
  ForkedRanks ranks(world_size, [&](int rank, const ForkedRanks::Ready&) -> std::string {
    BecomeNobody();
    prepare(rank);
    auto met = ConnectShm(name, rank, world_size, {.connect_timeout = kLong});
    if (!met.ok()) return Text(met.status());
    return Text((*met)->Barrier());
  });
  std::vector<std::string> results;
  for (int r = 0; r < world_size; ++r) results.push_back(ranks.Result(r));
  return results;
}

// The ranks pass each other 23 times 25 descriptors.
TEST(Descriptors, OfManyRanks_AreNeverMoreOnTheirWayThanOneRankMayHave) {
  constexpr rlim_t kFew = 96;
  for (const std::string& result : Meet(24, [](int) { LimitDescriptors(kFew); })) {
    EXPECT_EQ(result, Text(absl::OkStatus()));
  }
}

TEST(Descriptors, ThatRankZeroCannotSend_AreSaidByAllWithTheLimit) {
  constexpr rlim_t kFew = 64;
  const std::vector<std::string> results = Meet(3, [](int rank) {
    if (rank != 0) return;
    LeaveOnTheirWay(100);
    LimitDescriptors(kFew);
  });
  for (const std::string& result : results) {
    EXPECT_THAT(result, AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("rank 0 meets rank 1"),
                              HasSubstr("cannot send 4 more descriptors"),
                              HasSubstr("limit of descriptors, 64"), HasSubstr("ulimit -n")));
  }
}

TEST(Descriptors, ThatAnotherRankCannotSend_AreSaidByAllWithTheRank) {
  constexpr rlim_t kFew = 64;
  const std::vector<std::string> results = Meet(3, [](int rank) {
    if (rank != 2) return;
    LeaveOnTheirWay(100);
    LimitDescriptors(kFew);
  });
  for (const std::string& result : results) {
    EXPECT_THAT(result, AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("descriptors, 64"),
                              HasSubstr("ulimit -n")));
  }
  EXPECT_THAT(results[0], HasSubstr("rank 2: "));
  EXPECT_THAT(results[1], HasSubstr("rank 2: "));
}

// The rank has room for its socket and the descriptor of its own process.
TEST(Descriptors, ThatARankMayNotHave_AreSaidByAllWithTheRank) {
  constexpr int kRanks = 8;
  const std::vector<std::string> results = Meet(kRanks, [](int rank) {
    if (rank == 1) LimitDescriptors(NextDescriptor() + 4);
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string& result = results[static_cast<size_t>(rank)];
    // Descriptors in flight of this user's other processes count too, and may reach the limit
    // first.
    EXPECT_THAT(result,
                AllOf(HasSubstr("RESOURCE_EXHAUSTED"),
                      AnyOf(HasSubstr("cannot receive more than"),
                            HasSubstr("that this user's processes have sent and nobody")),
                      HasSubstr("ulimit -n")));
    EXPECT_THAT(result, HasSubstr(rank == 1 ? "" : "rank 1: "));
  }
}

// Rank 0 has no descriptor left to accept the last rank.
TEST(Descriptors, ThatRankZeroHasNotForAll_AreSaidByAll) {
  const std::vector<std::string> results = Meet(12, [](int rank) {
    if (rank == 0) LimitDescriptors(NextDescriptor() + 12);
  });
  for (const std::string& result : results) {
    EXPECT_THAT(result, AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("this process may have"),
                              HasSubstr("ulimit -n")));
  }
}

}  // namespace
}  // namespace geminid::collectives
