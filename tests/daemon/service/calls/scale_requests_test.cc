#include "daemon/service/calls/scale_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"

namespace geminid::service {
namespace {

using ::testing::HasSubstr;

constexpr char kTenant[] = "uid:7";
constexpr char kJob[] = "train";

const ScaleRequests::Job kMine = {kTenant, kJob}, kOther = {"uid:8", kJob};

class ScaleRequestsTest : public ::testing::Test {
 protected:
  v1::OfferScaleResponse Offer(uint64_t session, uint64_t number = 0, const std::string& state = "",
                               const std::string& why_not = "",
                               const std::string& tenant = kTenant) {
    v1::OfferScaleRequest offer;
    offer.set_session(session);
    offer.set_job(kJob);
    offer.set_run(run_);
    offer.set_can_move(can_move_);
    offer.set_ranks(2);
    offer.set_why_not(why_not);
    offer.set_number(number);
    offer.set_state(state);
    offer.set_message("as it is");
    return requests_.Offer(tenant, offer, attached_, now_);
  }

  absl::StatusOr<v1::ScaleRequest> Ask(uint32_t ranks, const std::string& tenant = kTenant) {
    v1::ScaleJobRequest wanted;
    wanted.set_job(kJob);
    wanted.set_ranks(ranks);
    return requests_.Ask(tenant, wanted, attached_, now_);
  }

  std::string Refusal(uint32_t ranks, const std::string& tenant = kTenant) {
    const absl::Status status = Ask(ranks, tenant).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    return std::string(status.message());
  }

  std::string StateOf(uint64_t number) {
    const auto found = requests_.Get(number, attached_, now_);
    return found.ok() ? found->state() : std::string(found.status().message());
  }

  JobCounts counts_;
  ScaleRequests requests_{&counts_};
  std::string run_ = "4f1c";  // the run of the ranks that offer
  bool can_move_ = true;
  ScaleRequests::Sessions attached_ = {{1, kMine}, {2, kMine}};
  core::Time now_ = core::Time::FromNanoseconds(1);
};

TEST_F(ScaleRequestsTest, OfAJobThatTakesThem_ReachItsRankAndEndAsItSays) {
  Offer(1);
  const auto asked = Ask(4);
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ(asked->state(), "asked");
  EXPECT_EQ(asked->ranks_before(), 2u);
  const v1::OfferScaleResponse told = Offer(1);
  EXPECT_EQ(told.number(), asked->number());
  EXPECT_EQ(told.ranks(), 4u);
  EXPECT_EQ(Offer(1, asked->number(), "taken").number(), 0u);  // the request is not sent again
  EXPECT_EQ(StateOf(asked->number()), "taken");
  attached_ = {{9, kMine}};  // the first rank of the new group
  Offer(9, asked->number(), "done");
  EXPECT_EQ(StateOf(asked->number()), "done");
  Offer(9, asked->number(), "refused");  // the first result counts
  EXPECT_EQ(StateOf(asked->number()), "done");
}

TEST_F(ScaleRequestsTest, ThatNobodyCanCarryOut_AreRefusedWithTheReason) {
  EXPECT_THAT(Refusal(4), HasSubstr("only ranks in training that geminid-train has started"));
  Offer(1);
  EXPECT_TRUE(absl::IsNotFound(Ask(4, "uid:8").status()));
  attached_.emplace(3, kOther);
  EXPECT_THAT(Refusal(4, "uid:8"), HasSubstr("of uid:8"));
  EXPECT_THAT(Refusal(2), HasSubstr("has 2 ranks already"));
  EXPECT_TRUE(absl::IsInvalidArgument(Ask(0).status()));
  Offer(1, 0, "", "its ranks are on several hosts");
  EXPECT_THAT(Refusal(4), HasSubstr("cannot be scaled: its ranks are on several hosts"));
  Offer(1);
  Offer(2);
  EXPECT_THAT(Refusal(4), HasSubstr("two runs are called train"));
  attached_ = {};
  EXPECT_TRUE(absl::IsNotFound(Ask(4).status()));
}

TEST_F(ScaleRequestsTest, OfPeople_AreCountedByOutcome) {
  EXPECT_FALSE(Ask(4).ok()) << "the daemon refuses";
  EXPECT_EQ(counts_.scales.refused, 1u);
  for (const char* const state : {"done", "refused"}) {
    Offer(1);
    const auto asked = Ask(4);
    ASSERT_TRUE(asked.ok()) << asked.status();
    Offer(1, asked->number(), state);
    Offer(1, asked->number(), state);  // only the first word counts
  }
  EXPECT_EQ(counts_.scales.done, 1u);
  EXPECT_EQ(counts_.scales.refused, 2u);
  EXPECT_EQ(counts_.scales.gone_back, 0u);
  const auto begun = Ask(4);
  ASSERT_TRUE(begun.ok()) << begun.status();
  Offer(1, begun->number(), "taken");
  Offer(1, begun->number(), "refused");
  EXPECT_EQ(counts_.scales.gone_back, 1u);
  const auto ended = Ask(4);
  ASSERT_TRUE(ended.ok()) << ended.status();
  Offer(1, ended->number(), "taken");
  requests_.RefuseOf(kMine);
  EXPECT_EQ(counts_.scales.refused, 3u) << "a job that is ended has not gone back";
  EXPECT_EQ(counts_.scales.done, 1u);
  EXPECT_EQ(counts_.moves.refused, 0u);
}

TEST_F(ScaleRequestsTest, OfTheDaemon_AreNotCountedAsThoseOfPeople) {
  v1::ScaleJobRequest wanted;
  wanted.set_job(kJob);
  wanted.set_ranks(4);
  const auto ask = [&] {
    return requests_.Ask(kTenant, wanted, attached_, now_, ScaleRequests::Asker::kDaemon);
  };
  EXPECT_FALSE(ask().ok());
  Offer(1);
  const auto asked = ask();
  ASSERT_TRUE(asked.ok()) << asked.status();
  Offer(1, asked->number(), "done");
  EXPECT_EQ(counts_.scales.done + counts_.scales.refused + counts_.scales.gone_back, 0u);
}

TEST_F(ScaleRequestsTest, AJobThatGoesOnWithFewerRanksAfterADeath_IsCountedOnce) {
  v1::OfferScaleRequest offer;
  offer.set_session(1);
  offer.set_job(kJob);
  offer.set_ranks(1);
  offer.set_has_shrunk(true);
  requests_.Offer(kTenant, offer, attached_, now_);
  requests_.Offer(kTenant, offer, attached_, now_);  // the answer was lost
  offer.set_has_shrunk(false);
  requests_.Offer(kTenant, offer, attached_, now_);
  EXPECT_EQ(counts_.shrunk, 1u);
}

TEST_F(ScaleRequestsTest, TwoAtOnce_AreRefusedUntilTheFirstHasEnded) {
  Offer(1);
  const auto first = Ask(4);
  ASSERT_TRUE(first.ok());
  EXPECT_THAT(Refusal(1), HasSubstr("was already asked for 4 ranks"));
  Offer(1, first->number(), "refused");
  EXPECT_TRUE(Ask(1).ok());
}

TEST_F(ScaleRequestsTest, OfARunThatDied_AreNotForTheNextOneOfItsName) {
  Offer(1);
  const auto asked = Ask(4);
  ASSERT_TRUE(asked.ok());
  attached_ = {{9, kMine}};  // restarted ranks of the same run
  EXPECT_EQ(Offer(9).number(), asked->number());
  attached_ = {{11, kMine}};
  run_ = "9b30";
  EXPECT_EQ(Offer(11).number(), 0u);
  EXPECT_EQ(StateOf(asked->number()), "refused");
  EXPECT_TRUE(Ask(4).ok());
}

TEST_F(ScaleRequestsTest, ThatTheRanksInTheTakersPlaceDoNotKnow_HaveFailed) {
  Offer(1);
  const auto asked = Ask(4);
  ASSERT_TRUE(asked.ok());
  Offer(1, asked->number(), "taken");
  Offer(1);  // the rank works on the request
  EXPECT_EQ(StateOf(asked->number()), "taken");
  attached_ = {{9, kMine}};
  Offer(9);
  EXPECT_EQ(StateOf(asked->number()), "refused");
}

TEST_F(ScaleRequestsTest, OfAJobThatHasNoRanksForAMinute_HaveFailed) {
  Offer(1);
  const auto asked = Ask(4);
  ASSERT_TRUE(asked.ok());
  Offer(1, asked->number(), "taken");
  attached_ = {};
  now_ = now_ + core::Duration::Seconds(59);
  EXPECT_EQ(StateOf(asked->number()), "taken");
  now_ = now_ + core::Duration::Seconds(1);
  EXPECT_EQ(StateOf(asked->number()), "refused");
}

// The ranks' launcher is a process that ends.
class ScaleRequestsOfALauncherTest : public ScaleRequestsTest {
 protected:
  void SetUp() override {
    base::UniqueFd launcher(eventfd(0, EFD_CLOEXEC));
    ASSERT_TRUE(launcher.valid());
    ends_ = launcher.get();
    requests_.SetLauncher(1, std::move(launcher));
    Offer(1);
  }
  void EndLauncher() const { ASSERT_EQ(eventfd_write(ends_, 1), 0); }
  std::string Message(uint64_t number) {
    return requests_.Get(number, attached_, now_).value_or(v1::ScaleRequest()).message();
  }

  int ends_ = -1;
};

TEST_F(ScaleRequestsOfALauncherTest, OfAJobThatStartsAgain_AreToBeAskedAgain) {
  attached_ = {};
  const absl::Status none = Ask(4).status();
  EXPECT_TRUE(absl::IsAborted(none)) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("the geminid-train that started them"));
  EXPECT_TRUE(absl::IsNotFound(Ask(4, "uid:8").status())) << "another tenant's job";
  attached_ = {{7, kMine}};
  const absl::Status loads = Ask(4).status();
  EXPECT_TRUE(absl::IsAborted(loads)) << loads;
  EXPECT_THAT(std::string(loads.message()), HasSubstr("do not train yet"));
  Offer(7);
  EXPECT_TRUE(Ask(4).ok());
  EXPECT_EQ(counts_.scales.refused, 1u) << "that of the other tenant";
}

TEST_F(ScaleRequestsOfALauncherTest, OfAJobThatEnds_FindNoJob) {
  Offer(1, 0, "", "the run ends");
  attached_ = {};
  EXPECT_TRUE(absl::IsNotFound(Ask(4).status())) << "nobody starts its ranks again";
}

TEST_F(ScaleRequestsOfALauncherTest, OfAJobWhoseLauncherEndsAfterADeath_FindNoJob) {
  attached_ = {};
  EXPECT_TRUE(absl::IsAborted(Ask(4).status()));
  EndLauncher();
  EXPECT_TRUE(absl::IsNotFound(Ask(4).status()));
}

TEST_F(ScaleRequestsOfALauncherTest, OfAJobWhoseLauncherIsGone_AreRefusedAtOnce) {
  for (const std::string state : {"", "taken"}) {
    attached_ = {{1, kMine}};
    SetUp();
    const auto asked = Ask(4);
    ASSERT_TRUE(asked.ok()) << asked.status();
    if (!state.empty()) Offer(1, asked->number(), state);
    attached_ = {};
    EXPECT_EQ(StateOf(asked->number()), state.empty() ? "asked" : state) << "ranks may come";
    EndLauncher();
    EXPECT_EQ(StateOf(asked->number()), "refused");
    EXPECT_THAT(Message(asked->number()), HasSubstr("the job has ended"));
  }
}

TEST_F(ScaleRequestsOfALauncherTest, OfAJobWithRanks_WaitForTheirAnswer) {
  const auto asked = Ask(4);
  ASSERT_TRUE(asked.ok()) << asked.status();
  EndLauncher();  // and the ranks are about to end, or have been adopted
  EXPECT_EQ(StateOf(asked->number()), "asked");
  Offer(1, asked->number(), "refused");
  EXPECT_EQ(Message(asked->number()), "as it is");
}

TEST_F(ScaleRequestsOfALauncherTest, ThatAreDone_StaySo) {
  const auto asked = Ask(4);
  ASSERT_TRUE(asked.ok()) << asked.status();
  Offer(1, asked->number(), "done");
  attached_ = {};
  EndLauncher();
  EXPECT_EQ(StateOf(asked->number()), "done");
}

// New ranks may be in the queue, or load a large model. A second request gets the first as its
// answer.
TEST_F(ScaleRequestsTest, OfNewRanksThatTakeLongToStart_WaitForThem) {
  Offer(1);
  const auto asked = Ask(4);
  ASSERT_TRUE(asked.ok());
  Offer(1, asked->number(), "taken");
  attached_ = {};
  EXPECT_THAT(Refusal(1), HasSubstr("was already asked for 4 ranks"));
  attached_ = {{9, kMine}};
  now_ = now_ + ScaleRequests::kSilence + ScaleRequests::kSilence;
  EXPECT_EQ(StateOf(asked->number()), "taken");
  Offer(9, asked->number(), "done");
  EXPECT_EQ(StateOf(asked->number()), "done");
}

// The time without ranks counts, not the time since their last report.
TEST_F(ScaleRequestsTest, OfNewRanksThatGoAfterLong_WaitForThoseThatFollow) {
  Offer(1);
  const auto asked = Ask(4);
  ASSERT_TRUE(asked.ok());
  Offer(1, asked->number(), "taken");
  attached_ = {{9, kMine}};
  now_ = now_ + core::Duration::Seconds(300);
  EXPECT_EQ(StateOf(asked->number()), "taken");
  EXPECT_TRUE(requests_.IsAsked(kMine, attached_, now_));
  attached_ = {};
  now_ = now_ + core::Duration::Seconds(59);
  EXPECT_EQ(StateOf(asked->number()), "taken");
  now_ = now_ + core::Duration::Seconds(1);
  EXPECT_EQ(StateOf(asked->number()), "refused");
  EXPECT_FALSE(requests_.IsAsked(kMine, attached_, now_));
}

TEST_F(ScaleRequestsTest, ThatEnded_AreForgottenWhenThereAreMany) {
  Offer(1);
  std::vector<uint64_t> numbers;
  for (size_t i = 0; i < ScaleRequests::kMostEnded + 2; ++i) {
    const auto asked = Ask(4);
    ASSERT_TRUE(asked.ok()) << asked.status();
    numbers.push_back(asked->number());
    Offer(1, asked->number(), "refused");
  }
  Offer(1);
  EXPECT_EQ(StateOf(numbers.back()), "refused");
  EXPECT_THAT(StateOf(numbers.front()), HasSubstr("does not know request"));
}

// The many requests of another tenant do not displace it.
TEST_F(ScaleRequestsTest, ThatEnded_AreForgottenForEachTenantAlone) {
  Offer(1);
  const auto mine = Ask(4);
  ASSERT_TRUE(mine.ok());
  Offer(1, mine->number(), "refused");
  attached_.emplace(3, kOther);
  for (size_t i = 0; i < ScaleRequests::kMostEnded + 2; ++i) {
    Offer(3, 0, "", "", "uid:8");
    const auto other = Ask(4, "uid:8");
    ASSERT_TRUE(other.ok()) << other.status();
    Offer(3, other->number(), "refused", "", "uid:8");
  }
  EXPECT_EQ(StateOf(mine->number()), "refused");
}

// These requests are deleted although no caller asks for the jobs by name any more.
TEST_F(ScaleRequestsTest, OfManyJobsThatEnded_AreForgotten) {
  uint64_t first = 0;
  for (size_t i = 0; i < ScaleRequests::kMostEnded + 2; ++i) {
    const std::string job = "job" + std::to_string(i);
    v1::OfferScaleRequest offer;
    offer.set_session(100 + i);
    offer.set_job(job);
    offer.set_ranks(2);
    attached_ = {{100 + i, {kTenant, job}}};
    requests_.Offer(kTenant, offer, attached_, now_);
    v1::ScaleJobRequest wanted;
    wanted.set_job(job);
    wanted.set_ranks(4);
    const auto asked = requests_.Ask(kTenant, wanted, attached_, now_);
    ASSERT_TRUE(asked.ok()) << asked.status();
    if (first == 0) first = asked->number();
    now_ = now_ + ScaleRequests::kSilence;
  }
  attached_ = {{1, kMine}};
  Offer(1);
  EXPECT_THAT(StateOf(first), HasSubstr("does not know request"));
}

// A caller that ends the job waits for its ranks to end.
TEST_F(ScaleRequestsTest, ThatRanksHaveTaken_SayThatTheJobHasNoneBetweenTwoGroups) {
  Offer(1);
  const auto asked = Ask(4);
  ASSERT_TRUE(asked.ok());
  attached_ = {};
  EXPECT_EQ(*requests_.EndWithoutRanks(kMine, attached_, now_), "") << "nobody has taken it";
  attached_ = {{1, kMine}};
  Offer(1, asked->number(), "taken");
  EXPECT_EQ(*requests_.EndWithoutRanks(kMine, attached_, now_), "");
  attached_ = {{3, kOther}};
  const absl::Status none = requests_.EndWithoutRanks(kMine, attached_, now_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(none)) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("it changes from 2 to 4 ranks"));
  EXPECT_EQ(*requests_.EndWithoutRanks(kOther, attached_, now_), "");
  now_ = now_ + ScaleRequests::kSilence;
  EXPECT_EQ(*requests_.EndWithoutRanks(kMine, attached_, now_), "") << "none will come";
}

TEST_F(ScaleRequestsTest, OfAJobThatIsEnded_AreRefusedAtOnce) {
  Offer(1);
  const auto asked = Ask(4);
  ASSERT_TRUE(asked.ok());
  requests_.RefuseOf(kOther);
  EXPECT_EQ(StateOf(asked->number()), "asked");
  requests_.RefuseOf(kMine);
  EXPECT_EQ(StateOf(asked->number()), "refused");
}

TEST_F(ScaleRequestsTest, OfAJobThatIsEndedDuringTheChange_TellTheNewRanksSo) {
  Offer(1);
  const auto asked = Ask(4);
  ASSERT_TRUE(asked.ok());
  Offer(1, asked->number(), "taken");
  EXPECT_FALSE(requests_.IsOfEndedJob(asked->number(), kMine));
  requests_.RefuseOf(kMine);
  attached_ = {{9, kMine}};  // the first rank of the new group
  Offer(9, asked->number(), "done");
  EXPECT_EQ(StateOf(asked->number()), "refused");
  EXPECT_TRUE(requests_.IsOfEndedJob(asked->number(), kMine));
  EXPECT_FALSE(requests_.IsOfEndedJob(asked->number(), kOther));
  EXPECT_FALSE(requests_.IsOfEndedJob(0, kMine)) << "ranks that no request has started";
}

TEST_F(ScaleRequestsTest, ThatWereDoneBeforeTheJobIsEnded_EndNoOtherRanks) {
  Offer(1);
  const auto asked = Ask(4);
  ASSERT_TRUE(asked.ok());
  Offer(1, asked->number(), "done");
  requests_.RefuseOf(kMine);
  EXPECT_FALSE(requests_.IsOfEndedJob(asked->number(), kMine));
}

TEST_F(ScaleRequestsTest, OfTwoRunsOfOneName_AreTheRunsThatWasAsked) {
  Offer(1);
  const auto asked = Ask(4);
  ASSERT_TRUE(asked.ok());
  EXPECT_EQ(Offer(2).number(), 0u);  // the run began after the request
  EXPECT_EQ(Offer(1).number(), asked->number());
  Offer(1, asked->number(), "taken");
  Offer(2);
  EXPECT_EQ(StateOf(asked->number()), "taken");
}

// Ranks report to the next daemon what they could not report to the earlier one.
TEST_F(ScaleRequestsTest, OfTheDaemonBefore_HaveOtherNumbers) {
  Offer(1);
  const auto asked = Ask(4);
  ASSERT_TRUE(asked.ok());
  ScaleRequests next;
  v1::OfferScaleRequest offer;
  offer.set_session(1);
  offer.set_job(kJob);
  offer.set_ranks(2);
  next.Offer(kTenant, offer, attached_, now_);
  v1::ScaleJobRequest wanted;
  wanted.set_job(kJob);
  wanted.set_ranks(4);
  const auto again = next.Ask(kTenant, wanted, attached_, now_);
  ASSERT_TRUE(again.ok());
  EXPECT_NE(again->number(), asked->number());
}

TEST_F(ScaleRequestsTest, OfSharedJobs_AreThoseThatSayWhatTheyWouldDo) {
  v1::OfferScaleRequest offer;
  offer.set_session(1);
  offer.set_job(kJob);
  offer.set_ranks(2);
  requests_.Offer(kTenant, offer, attached_, now_);
  EXPECT_TRUE(requests_.SharedJobs(attached_, now_).empty());
  offer.mutable_share()->add_rows()->set_ranks(2);
  requests_.Offer(kTenant, offer, attached_, now_);
  auto shared = requests_.SharedJobs(attached_, now_);
  ASSERT_EQ(shared.size(), 1u);
  EXPECT_EQ(shared[0].job, kMine);
  EXPECT_EQ(shared[0].ranks, 2u);
  EXPECT_EQ(shared[0].why_not, "");
  ASSERT_TRUE(Ask(4).ok());
  shared = requests_.SharedJobs(attached_, now_);
  EXPECT_THAT(shared[0].why_not, HasSubstr("it was asked for 4 ranks"));
  Offer(2);  // another run of the same name
  EXPECT_TRUE(requests_.SharedJobs(attached_, now_).empty());
}

TEST_F(ScaleRequestsTest, ThatAreWithdrawn_EndUnlessTheRanksHaveTakenThem) {
  Offer(1);
  const auto first = Ask(4);
  ASSERT_TRUE(first.ok());
  requests_.Withdraw(first->number(), "it did not answer");
  EXPECT_EQ(StateOf(first->number()), "refused");
  EXPECT_EQ(Offer(1).number(), 0u);
  const auto second = Ask(4);
  ASSERT_TRUE(second.ok());
  Offer(1, second->number(), "taken");
  requests_.Withdraw(second->number(), "it did not answer");
  EXPECT_EQ(StateOf(second->number()), "taken");
}

// --- moves to another host ---

class MoveRequestsTest : public ScaleRequestsTest {
 protected:
  absl::StatusOr<v1::ScaleRequest> AskToMove(const std::string& host, uint32_t ranks = 0) {
    v1::ScaleJobRequest wanted;
    wanted.set_job(kJob);
    wanted.set_ranks(ranks);
    wanted.set_host(host);
    return requests_.Ask(kTenant, wanted, attached_, now_);
  }

  absl::Status Tell(uint64_t number, const std::string& state, const std::string& tenant = kTenant,
                    const std::string& job = kJob) {
    v1::OfferScaleRequest told;
    told.set_job(job);
    told.set_number(number);
    told.set_state(state);
    told.set_message("goes on there");
    return requests_.Tell(tenant, told, attached_, now_);
  }
};

TEST_F(MoveRequestsTest, WithoutANumber_AreForAsManyRanksAsThereAre) {
  Offer(1);
  const auto asked = AskToMove("beta");
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ(asked->ranks(), 2u);
  EXPECT_EQ(asked->host(), "beta");
  const v1::OfferScaleResponse told = Offer(1);
  EXPECT_EQ(told.host(), "beta");
  EXPECT_EQ(told.ranks(), 2u);
  EXPECT_THAT(Refusal(4), HasSubstr("was already asked to go on at beta with 2 ranks"));
}

TEST_F(MoveRequestsTest, OfAJobThatCannot_AreRefusedWithTheReason) {
  EXPECT_THAT(std::string(AskToMove("beta").status().message()),
              HasSubstr("does not go to another host"));
  Offer(1, 0, "", "its ranks are on several hosts");
  EXPECT_THAT(std::string(AskToMove("beta").status().message()),
              HasSubstr("cannot be moved: its ranks are on several hosts"));
  EXPECT_TRUE(absl::IsInvalidArgument(AskToMove(std::string(256, 'h')).status()));
}

// The launcher reports for ranks that have left this host.
TEST_F(MoveRequestsTest, OfARunThatHasLeft_EndAsItsLauncherSays) {
  Offer(1);
  const auto asked = AskToMove("beta");
  ASSERT_TRUE(asked.ok());
  EXPECT_TRUE(absl::IsNotFound(Tell(asked->number(), "done"))) << "no rank has taken it";
  Offer(1, asked->number(), "taken");
  attached_ = {};
  for (int i = 0; i < 5; ++i) {
    now_ = now_ + core::Duration::Seconds(59);
    EXPECT_TRUE(Tell(asked->number(), "taken").ok()) << "it takes long";
  }
  EXPECT_TRUE(absl::IsNotFound(Tell(asked->number(), "done", "uid:8")));
  EXPECT_TRUE(absl::IsNotFound(Tell(asked->number(), "done", kTenant, "other")));
  EXPECT_TRUE(absl::IsNotFound(Tell(asked->number(), "soon")));
  EXPECT_EQ(StateOf(asked->number()), "taken");
  EXPECT_TRUE(Tell(asked->number(), "done").ok());
  EXPECT_EQ(StateOf(asked->number()), "done");
  EXPECT_TRUE(absl::IsNotFound(Tell(asked->number(), "refused"))) << "the first word counts";
  EXPECT_EQ(counts_.moves.done, 1u);
  EXPECT_EQ(counts_.scales.done, 0u);
}

TEST_F(MoveRequestsTest, OfAJobThatIsEndedOnItsWay_TellItsLauncherAndThenThePerson) {
  Offer(1);
  const auto asked = AskToMove("beta");
  ASSERT_TRUE(asked.ok());
  Offer(1, asked->number(), "taken");
  attached_ = {};
  const absl::Status wait = requests_.EndWithoutRanks(kMine, attached_, now_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(wait)) << wait;
  EXPECT_THAT(std::string(wait.message()), HasSubstr("has no ranks now: it goes to beta"));
  EXPECT_EQ(StateOf(asked->number()), "taken") << "its launcher does not know yet";
  EXPECT_TRUE(absl::IsAborted(Tell(asked->number(), "taken")));
  EXPECT_TRUE(absl::IsAborted(Tell(asked->number(), "taken"))) << "the answer may be lost";
  EXPECT_FALSE(requests_.EndWithoutRanks(kMine, attached_, now_).ok()) << "nobody has ended it yet";
  EXPECT_TRUE(Tell(asked->number(), "ended").ok());
  EXPECT_EQ(StateOf(asked->number()), "refused");
  EXPECT_EQ(*requests_.EndWithoutRanks(kMine, attached_, now_), "beta");
  EXPECT_EQ(*requests_.EndWithoutRanks(kMine, attached_, now_), "") << "there is no such job";
}

TEST_F(MoveRequestsTest, OfAJobThatArrivesBeforeItsLauncherHearsOfTheEnd_AreDone) {
  Offer(1);
  const auto asked = AskToMove("beta");
  ASSERT_TRUE(asked.ok());
  Offer(1, asked->number(), "taken");
  attached_ = {};
  EXPECT_TRUE(absl::IsNotFound(Tell(asked->number(), "ended"))) << "nobody wants that";
  EXPECT_FALSE(requests_.EndWithoutRanks(kMine, attached_, now_).ok());
  EXPECT_TRUE(absl::IsAborted(Tell(asked->number(), "taken")));
  EXPECT_TRUE(Tell(asked->number(), "done").ok());
  EXPECT_EQ(*requests_.EndWithoutRanks(kMine, attached_, now_), "");
  EXPECT_THAT(std::string(requests_.CheckHasNotLeft(kMine, attached_).message()),
              HasSubstr("it goes on at beta"));
}

TEST_F(MoveRequestsTest, OfAJobThatWasEndedOnItsWay_SayItForAMinute) {
  Offer(1);
  const auto asked = AskToMove("beta");
  ASSERT_TRUE(asked.ok());
  Offer(1, asked->number(), "taken");
  attached_ = {};
  EXPECT_FALSE(requests_.EndWithoutRanks(kMine, attached_, now_).ok());
  EXPECT_TRUE(Tell(asked->number(), "ended").ok());
  now_ = now_ + ScaleRequests::kSilence;
  EXPECT_EQ(*requests_.EndWithoutRanks(kMine, attached_, now_), "");
}

// For a person who wants to end the job while its state travels.
TEST_F(MoveRequestsTest, OfARunThatHasLeft_SayWhereItIs) {
  Offer(1);
  const auto asked = AskToMove("beta");
  ASSERT_TRUE(asked.ok());
  Offer(1, asked->number(), "taken");
  attached_ = {};
  EXPECT_TRUE(requests_.CheckHasNotLeft(kMine, attached_).ok()) << "it may come back";
  EXPECT_TRUE(Tell(asked->number(), "done").ok());
  const absl::Status left = requests_.CheckHasNotLeft(kMine, attached_);
  EXPECT_TRUE(absl::IsNotFound(left));
  EXPECT_THAT(std::string(left.message()), HasSubstr("it goes on at beta"));
  EXPECT_TRUE(requests_.CheckHasNotLeft(kOther, attached_).ok());
  attached_ = {{9, kMine}};  // another run of that name
  EXPECT_TRUE(requests_.CheckHasNotLeft(kMine, attached_).ok());
}

// For example, "home2" is a name of this host.
TEST_F(MoveRequestsTest, ToThisHostByAnotherName_EndAsTheLauncherSays) {
  Offer(1);
  const auto asked = AskToMove("home2");
  ASSERT_TRUE(asked.ok());
  Offer(1, asked->number(), "taken");
  attached_ = {{9, kMine}};
  run_ = "9b30";
  Offer(9);  // the next ranks are here again, and do not know the request
  EXPECT_EQ(StateOf(asked->number()), "taken");
  EXPECT_TRUE(Tell(asked->number(), "done").ok());
  EXPECT_EQ(StateOf(asked->number()), "done");
}

// The rank's report that it took the request was lost.
TEST_F(MoveRequestsTest, ThatWereTakenInSilence_EndAsTheLauncherSays) {
  Offer(1);
  const auto asked = AskToMove("beta");
  ASSERT_TRUE(asked.ok());
  attached_ = {};
  EXPECT_TRUE(Tell(asked->number(), "done").ok());
  EXPECT_EQ(StateOf(asked->number()), "done");
}

TEST_F(MoveRequestsTest, ToRanksOfAVersionThatDoesNotMove_AreRefused) {
  can_move_ = false;
  Offer(1);
  EXPECT_THAT(std::string(AskToMove("beta").status().message()), HasSubstr("an older version"));
  EXPECT_TRUE(Ask(4).ok());
}

TEST_F(MoveRequestsTest, OfWhichNobodySpeaksForAMinute_AreRefused) {
  Offer(1);
  const auto asked = AskToMove("beta");
  ASSERT_TRUE(asked.ok());
  Offer(1, asked->number(), "taken");
  attached_ = {};
  now_ = now_ + ScaleRequests::kSilence;
  EXPECT_EQ(StateOf(asked->number()), "refused");
}

}  // namespace
}  // namespace geminid::service
