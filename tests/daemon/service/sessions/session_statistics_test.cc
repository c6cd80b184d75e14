#include "daemon/service/sessions/session_statistics.h"

#include "tests/daemon/service/sessions/bare_table.h"

namespace geminid::service {
namespace {

class TallyTest : public BareTable {
 protected:
  // Counts as the client does.
  static void SetStep(const SessionPtr& session, uint64_t step) {
    session->segments().client()->counters.step.store(step);
  }
  uint64_t Steps(const SessionTable::Locked& locked) {
    const metrics::SessionCounters::Reading reading = statistics_.Counted(locked);
    uint64_t steps = 0;
    for (const auto& series : reading.series) steps += series.counts.steps;
    return steps;
  }

  SessionStatistics statistics_;
};

TEST_F(TallyTest, CountsOfASession_OutliveIt) {
  const SessionPtr session = Open();
  SetStep(session, 3);
  const SessionTable::Locked locked = table_.Lock();
  statistics_.NoteAll(locked);
  EXPECT_EQ(Steps(locked), 3u);
  statistics_.End(locked, session->id());
  EXPECT_EQ(Steps(locked), 3u);
}

// The session's counters are out of date, and its replacement counts there next.
TEST_F(TallyTest, SessionWithoutAClient_IsNotReadAgain) {
  const SessionPtr session = Open();
  SetStep(session, 3);
  const SessionTable::Locked locked = table_.Lock();
  statistics_.Note(locked, *session);
  session->SetEnded();
  SetStep(session, 9);
  statistics_.NoteAll(locked);
  EXPECT_EQ(Steps(locked), 3u);
}

TEST_F(TallyTest, Allocations_AreCountedByTier) {
  const SessionTable::Locked locked = table_.Lock();
  EXPECT_EQ(statistics_.allocations(locked).size(), 2u) << "metrics have both from the start";
  statistics_.NoteAllocation(locked, shm::Tier::kDevice, core::Duration::Milliseconds(2));
  EXPECT_EQ(statistics_.allocations(locked).at(shm::Tier::kDevice).sum().nanoseconds(), 2'000'000);
  EXPECT_EQ(statistics_.allocations(locked).at(shm::Tier::kHost).sum().nanoseconds(), 0);
}

}  // namespace
}  // namespace geminid::service
