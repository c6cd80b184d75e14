#include "daemon/service/sessions/restorer.h"

#include <fcntl.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/os/event.h"
#include "tests/daemon/service/sessions/bare_table.h"

namespace geminid::service {
namespace {

class RestorerTest : public BareTable {
 protected:
  static Shortage NoPatience() {
    return Shortage([](core::Duration) { ADD_FAILURE() << "waited"; });
  }

  Waker waker_;
  Restorer restorer_{&table_, &plans_, &waker_, &in_flight_, &names_};
};

TEST(IsDamage, WhatEveryDaemonWouldFind_IsDamage) {
  EXPECT_TRUE(IsDamage(absl::DataLossError("two records of a chunk")));
  EXPECT_TRUE(IsDamage(absl::InvalidArgumentError("books of another size")));
  EXPECT_TRUE(IsDamage(absl::AbortedError("not sealed")));
}

TEST(IsDamage, WhatAnotherDaemonMayFindOtherwise_IsNone) {
  EXPECT_FALSE(IsDamage(absl::OkStatus()));
  EXPECT_FALSE(IsDamage(absl::ResourceExhaustedError("no descriptors")));
  EXPECT_FALSE(IsDamage(absl::FailedPreconditionError("another release")));
}

TEST_F(RestorerTest, SessionOfWhichSomethingIsMissing_IsGivenUpAndCounted) {
  std::map<shm::SessionId, InheritedDescriptors::OfSession> kept;
  InheritedDescriptors::OfSession& session = kept[shm::SessionId{1}];
  session.names = {"s1-books", "s1-pool1"};
  names_.names = {"s1-books", "s1-pool1", "s2-books"};
  session.kinds[kKeptBooks] = *os::CreateEvent();
  const base::UniqueFd pool = *base::CreateRevocableMemfd("pool", 4096);
  session.pools[shm::PoolId{1}] = base::UniqueFd(::fcntl(pool.get(), F_DUPFD_CLOEXEC, 0));
  Shortage shortage = NoPatience();
  EXPECT_EQ(restorer_.AdoptAll(&kept, &shortage), absl::OkStatus());
  EXPECT_EQ(restorer_.lost(), 1u);
  EXPECT_EQ(names_.names, std::set<std::string>{"s2-books"});
  EXPECT_FALSE(base::CheckRevocable(pool, 4096).ok()) << "its client has its memory still";
}

TEST_F(RestorerTest, NothingThatWasLeft_IsAnOrderlyStart) {
  std::map<shm::SessionId, InheritedDescriptors::OfSession> kept;
  Shortage shortage = NoPatience();
  EXPECT_EQ(restorer_.AdoptAll(&kept, &shortage), absl::OkStatus());
  std::vector<core::Outgoing> out;
  EXPECT_EQ(restorer_.Finish(&out), absl::OkStatus());
  EXPECT_TRUE(out.empty());
  EXPECT_TRUE(restorer_.TakeGarbage().empty());
}

}  // namespace
}  // namespace geminid::service
