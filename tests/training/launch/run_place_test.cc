// Moves a run from one host to another; the hosts are fakes.
#include "training/launch/run_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "training/launch/state_pieces.h"

namespace geminid::trainer {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr uint64_t kStateBytes = 10;

// A fake host that records its calls.
class Host final : public RankHost {
 public:
  explicit Host(std::string name) : name_(std::move(name)) {}

  std::string name() const override { return name_; }
  absl::Status Start(const std::vector<RankStart>&) override { return absl::OkStatus(); }
  std::vector<RankState*> ranks() override { return {}; }
  void Signal(int) override {}
  void AddTo(std::vector<pollfd>*) const override {}
  void Look(absl::Time) override {}
  bool ready() const override { return is_ready; }
  absl::Status failure() const override { return failed; }
  absl::Time ends_by() const override { return last_rank; }
  void GiveUp(absl::Duration) override { failed = absl::DeadlineExceededError("too slow"); }
  void Leave() override { ++left; }
  std::optional<Handover> handover() const override { return state; }
  std::optional<MoveRequest> wanted() const override { return wish; }
  void Answer(uint64_t request, const absl::Status& status) override {
    answers.emplace_back(request, status);
  }
  void Tell(const MoveOutcome& outcome) override { told.push_back(outcome); }
  bool job_ended() const override { return ended; }
  void BeginToSend() override { pieces = {"0123", "456789", "sum!"}; }
  std::optional<std::string> TakePiece() override {
    if (pieces.empty() || most_pieces == 0) return std::nullopt;
    --most_pieces;
    std::string piece = pieces.front();
    pieces.pop_front();
    return piece;
  }
  void BeginToReceive(const Handover& handover) override { comes = handover; }
  bool takes_piece() const override { return comes.has_value(); }
  void AddPiece(const std::string& piece) override {
    got += piece;
    if (got.size() != kStateBytes + kChecksumBytes) return;
    state = comes;
    state->host.clear();
  }

  bool is_ready = true;
  absl::Status failed;
  absl::Time last_rank = absl::InfinitePast();
  int left = 0;
  bool ended = false;
  int most_pieces = 100;
  std::optional<Handover> state, comes;
  std::optional<MoveRequest> wish;
  std::vector<std::pair<uint64_t, absl::Status>> answers;
  std::vector<MoveOutcome> told;
  std::deque<std::string> pieces;
  std::string got;

 private:
  const std::string name_;
};

class RunPlaces : public ::testing::Test {
 protected:
  RunPlaces() {
    RunPlace::Options options;
    options.reach = [this](const MoveRequest& move) -> absl::StatusOr<std::shared_ptr<RankHost>> {
      reached_.push_back(move);
      if (!refusal_.ok()) return refusal_;
      return beta_;
    };
    options.say = [this](const std::string& line) { said_ += line; };
    options.now = [this] { return now_; };
    place_ = std::make_unique<RunPlace>(home_, std::move(options));
  }

  void Want(uint64_t request, const std::string& host = "beta") {
    home_->wish = MoveRequest{.request = request, .host = host, .ranks = 2};
    place_->Look();
  }

  // The state that ranks leave when they move to beta.
  void HandOver() {
    home_->state = Handover{.number = 1,
                            .request = 7,
                            .ranks_before = 2,
                            .ranks_after = 2,
                            .step = 12,
                            .bytes = kStateBytes,
                            .began = now_,
                            .host = "beta"};
  }

  void Arrive() {
    Want(7);
    HandOver();
    place_->GoTo("beta", "");
    ASSERT_EQ(place_->host(), beta_.get());
  }

  const std::shared_ptr<Host> home_ = std::make_shared<Host>("");
  const std::shared_ptr<Host> beta_ = std::make_shared<Host>("beta");
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  absl::Status refusal_;
  std::vector<MoveRequest> reached_;
  std::string said_;
  std::unique_ptr<RunPlace> place_;
};

TEST_F(RunPlaces, OfRanksThatWantToGo_AnswerWhenTheHostIsReady) {
  beta_->is_ready = false;
  Want(7);
  place_->Look();
  EXPECT_THAT(reached_, SizeIs(1));
  EXPECT_THAT(home_->answers, IsEmpty());
  beta_->is_ready = true;
  place_->Look();
  place_->Look();
  ASSERT_THAT(home_->answers, SizeIs(1));
  EXPECT_EQ(home_->answers[0], std::make_pair(uint64_t{7}, absl::OkStatus()));
}

TEST_F(RunPlaces, OfAHostThatCannotHaveTheRun_SayWhyOnceAndLeaveIt) {
  beta_->failed = absl::ResourceExhaustedError("beta: it is full");
  Want(7);
  place_->Look();
  ASSERT_THAT(home_->answers, SizeIs(1));
  EXPECT_EQ(home_->answers[0].second, absl::ResourceExhaustedError("beta: it is full"));
  EXPECT_EQ(beta_->left, 1);
  EXPECT_THAT(reached_, SizeIs(1)) << "it is tried once";
  beta_->failed = absl::OkStatus();
  Want(8);
  EXPECT_EQ(home_->answers.back(), std::make_pair(uint64_t{8}, absl::OkStatus()));
}

TEST_F(RunPlaces, OfAHostThatIsNotReadyInTime_GiveItUp) {
  beta_->is_ready = false;
  Want(7);
  now_ += absl::Seconds(59);
  place_->Look();
  EXPECT_THAT(home_->answers, IsEmpty());
  EXPECT_EQ(place_->look_by(), now_ + absl::Seconds(1));
  now_ += absl::Seconds(1);
  place_->Look();
  ASSERT_THAT(home_->answers, SizeIs(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(home_->answers[0].second));
}

TEST_F(RunPlaces, OfNamesThatAreNone_ReachNobody) {
  for (const char* const name : {"-oProxyCommand=sh", "", "a b", "@", "user@"}) {
    Want(reached_.size() + home_->answers.size() + 1, name);
    ASSERT_FALSE(home_->answers.empty());
    EXPECT_TRUE(absl::IsInvalidArgument(home_->answers.back().second)) << name;
  }
  EXPECT_THAT(reached_, IsEmpty());
}

TEST_F(RunPlaces, OfAWishThatIsWithdrawn_LeaveTheHost) {
  Want(7);
  home_->wish.reset();
  place_->Look();
  EXPECT_EQ(beta_->left, 1);
}

TEST_F(RunPlaces, OfStateThatWasHandedOver_CarryItPieceByPiece) {
  Want(7);
  HandOver();
  home_->most_pieces = 1;
  place_->GoTo("beta", "");
  EXPECT_TRUE(place_->carries());
  EXPECT_EQ(place_->host(), home_.get());
  home_->most_pieces = 5;
  place_->Look();
  EXPECT_FALSE(place_->carries());
  EXPECT_TRUE(place_->status().ok()) << place_->status();
  EXPECT_EQ(place_->host(), beta_.get());
  EXPECT_EQ(beta_->got, "0123456789sum!");
  EXPECT_EQ(home_->left, 0) << "its state is still needed";
}

TEST_F(RunPlaces, OfRanksThatNeedTheStateNoMore_TellWhoeverAskedAndLeaveTheHostBefore) {
  Arrive();
  now_ += absl::Milliseconds(800);
  beta_->state->followed = true;
  place_->Look();
  EXPECT_THAT(home_->told, IsEmpty());
  now_ += absl::Seconds(3);  // the second step ends
  beta_->state.reset();
  place_->Look();
  ASSERT_THAT(home_->told, SizeIs(1));
  EXPECT_EQ(home_->told[0].request, 7u);
  EXPECT_EQ(home_->told[0].state, "done");
  EXPECT_EQ(home_->told[0].message,
            "goes on at beta as 2 ranks after step 12, 800ms after that step");
  EXPECT_EQ(home_->left, 1);
  EXPECT_EQ(beta_->left, 0);
}

TEST_F(RunPlaces, OfAHostThatIsLostOnTheWay_StayWhereTheyWere) {
  Want(7);
  HandOver();
  home_->most_pieces = 1;
  place_->GoTo("beta", "");
  beta_->failed = absl::UnavailableError("nothing was heard from beta");
  place_->Look();
  EXPECT_FALSE(place_->carries());
  EXPECT_EQ(place_->status(), beta_->failed);
  EXPECT_EQ(place_->host(), home_.get());
  place_->GoTo("", "nothing was heard from beta");
  EXPECT_TRUE(place_->status().ok());
  EXPECT_EQ(home_->answers.back().first, 7u);
  EXPECT_THAT(std::string(home_->answers.back().second.message()), HasSubstr("nothing was heard"));
}

TEST_F(RunPlaces, OfAHostThatIsLostBeforeTheStateIsHandedOver_SayThatOfIt) {
  Want(7);
  beta_->failed = absl::UnavailableError("nothing was heard from beta");
  place_->Look();
  HandOver();
  place_->GoTo("beta", "");
  EXPECT_EQ(place_->status(), beta_->failed);
  EXPECT_EQ(place_->host(), home_.get());
}

TEST_F(RunPlaces, OfRanksThatFailAtTheNewHost_GoBackToTheStateThatIsThereStill) {
  Arrive();
  place_->GoTo("beta", "rank 1 was killed");  // a restart at beta
  EXPECT_EQ(place_->host(), beta_.get());
  place_->GoTo("", "rank 1 was killed");
  EXPECT_EQ(place_->host(), home_.get());
  EXPECT_EQ(beta_->left, 1);
  EXPECT_EQ(home_->left, 0);
  EXPECT_EQ(home_->answers.back().second, absl::UnavailableError("rank 1 was killed"));
  place_->Look();
  EXPECT_THAT(home_->told, IsEmpty()) << "its ranks say it";
}

// A daemon refuses a request if no news of the request comes for a minute.
TEST_F(RunPlaces, OfAMoveThatTakesLong_TellThatItIsUnderWay) {
  Arrive();
  EXPECT_EQ(place_->look_by(), now_ + absl::Seconds(1));
  now_ += absl::Milliseconds(900);
  place_->Look();
  EXPECT_THAT(home_->told, IsEmpty());
  now_ += absl::Milliseconds(100);
  place_->Look();
  place_->Look();
  ASSERT_THAT(home_->told, SizeIs(1));
  EXPECT_EQ(home_->told[0].state, "taken");
}

TEST_F(RunPlaces, OfARunThatEndsBeforeItsSecondStepThere_TellWhoeverAsked) {
  Arrive();
  place_.reset();
  ASSERT_THAT(home_->told, SizeIs(1));
  EXPECT_EQ(home_->told[0].state, "refused");
  EXPECT_EQ(home_->told[0].message, "the run ends");
}

TEST_F(RunPlaces, OfARunThatIsThereAlready_RefuseToGo) {
  Arrive();
  beta_->state.reset();
  place_->Look();
  beta_->wish = MoveRequest{.request = 9, .host = "beta", .ranks = 2};
  place_->Look();
  ASSERT_THAT(beta_->answers, SizeIs(1));
  EXPECT_THAT(std::string(beta_->answers[0].second.message()), HasSubstr("is at beta already"));
}

TEST_F(RunPlaces, OfAJobThatIsEndedWhileItsStateTravels_GiveBackWhatHasArrived) {
  Want(7);
  HandOver();
  home_->most_pieces = 1;
  place_->GoTo("beta", "");
  EXPECT_FALSE(place_->job_ended());
  home_->ended = true;
  home_->most_pieces = 5;
  place_->Look();
  EXPECT_TRUE(place_->job_ended());
  EXPECT_FALSE(place_->carries());
  EXPECT_TRUE(absl::IsCancelled(place_->status()));
  EXPECT_EQ(place_->host(), home_.get());
  EXPECT_EQ(beta_->left, 1);
  EXPECT_EQ(beta_->got, "0123") << "no more of it is sent";
  EXPECT_THAT(reached_, SizeIs(1)) << "its request is not begun anew";
  place_.reset();
  ASSERT_THAT(home_->told, SizeIs(1)) << "its daemon knows that the run is ended, and no more";
  EXPECT_EQ(home_->told[0].state, "ended");
}

TEST_F(RunPlaces, OfAJobThatIsEndedBeforeItsSecondStepThere_DoNotArrive) {
  Arrive();
  home_->ended = true;
  beta_->state.reset();  // the second step ends
  place_->Look();
  EXPECT_TRUE(place_->job_ended());
  ASSERT_THAT(home_->told, SizeIs(1));
  EXPECT_EQ(home_->told[0].state, "ended");
  EXPECT_EQ(place_->look_by(), absl::InfiniteFuture()) << "there is nothing left to wait for";
}

// A run that has arrived is the other daemon's.
TEST_F(RunPlaces, OfAJobThatHasArrived_HearNothingMoreOfTheDaemonBefore) {
  Arrive();
  beta_->state.reset();
  place_->Look();
  home_->ended = true;
  place_->Look();
  EXPECT_FALSE(place_->job_ended());
}

// If both groups of ranks ran, both would write to the same files.
TEST_F(RunPlaces, OfAHostThatWasLost_WaitUntilItsRanksHaveEnded) {
  Arrive();
  beta_->failed = absl::UnavailableError("nothing was heard from beta for 1.2s");
  beta_->last_rank = now_ + absl::Seconds(2);
  place_->GoTo("", "rank 0 was lost with its host");
  EXPECT_EQ(place_->host(), home_.get());
  EXPECT_TRUE(place_->waits());
  EXPECT_EQ(place_->look_by(), now_ + absl::Seconds(2));
  EXPECT_THAT(said_, HasSubstr("goes back from beta: rank 0 was lost with its host; first its "
                               "ranks there get 2s to end"));
  now_ += absl::Seconds(2);
  EXPECT_FALSE(place_->waits());
}

}  // namespace
}  // namespace geminid::trainer
