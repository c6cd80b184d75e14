// The first rank's answers to a daemon's requests for another number of ranks, and their timing.
// The daemon that receives the offers is a fake; the session is with a real daemon.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "geminid/v1/job.grpc.pb.h"
#include "tests/base/temporary_folder.h"
#include "tests/daemon_env/daemon_env.h"
#include "training/scaling/scaling.h"

namespace geminid::trainer {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// The interval of offers to a daemon that answers.
constexpr absl::Duration kSoon = absl::Seconds(1);

// Answers offers with a function, and records them.
class Daemon final : public v1::JobService::Service {
 public:
  using Answer = std::function<grpc::Status(const v1::OfferScaleRequest&, v1::OfferScaleResponse*)>;

  explicit Daemon(const std::string& socket) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~Daemon() override { server_->Shutdown(std::chrono::system_clock::now()); }

  grpc::Status OfferScale(grpc::ServerContext*, const v1::OfferScaleRequest* request,
                          v1::OfferScaleResponse* response) override {
    offers.push_back(*request);
    return answer(*request, response);
  }

  Answer answer = [](const auto&, auto*) { return grpc::Status::OK; };
  std::vector<v1::OfferScaleRequest> offers;

 private:
  std::unique_ptr<grpc::Server> server_;
};

class ScaleOffers : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(env_.Start().ok());
    ConnectOptions connect;
    connect.socket = env_.socket();
    auto session = Session::Connect(connect);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
    auto handover = HandoverMemory::Create();
    ASSERT_TRUE(handover.ok()) << handover.status();
    context_.handover = *std::move(handover);
    context_.socket = folder_ / "socket";
    options_.job = "train";
    daemon_.emplace(context_.socket);
    scaling_.emplace(options_, context_, session_.get(), nullptr, nullptr, nullptr,
                     [](const std::string&) {});
  }

  // A user asks the daemon for four ranks; only the first answer says so.
  void AskForFour() {
    daemon_->answer = [](const v1::OfferScaleRequest& offer, v1::OfferScaleResponse* response) {
      if (offer.number() == 0) {
        response->set_number(5);
        response->set_ranks(4);
      }
      return grpc::Status::OK;
    };
  }

  geminid::testing::DaemonEnv env_;
  std::unique_ptr<Session> session_;
  const base::TemporaryFolder folder_;
  TrainOptions options_;
  RankContext context_;
  std::optional<Daemon> daemon_;
  std::optional<Scaling> scaling_;
};

TEST_F(ScaleOffers, ToADaemonThatAnswers_AreMadeAgainSoon) {
  const absl::Time now = base::MonotonicNow();
  EXPECT_EQ(scaling_->Poll(now), 0);
  EXPECT_EQ(scaling_->Poll(now), 0);
  EXPECT_THAT(daemon_->offers, SizeIs(1));
  EXPECT_EQ(scaling_->Poll(base::MonotonicNow() + kSoon), 0);
  ASSERT_THAT(daemon_->offers, SizeIs(2));
  EXPECT_EQ(daemon_->offers[1].job(), "train");
  EXPECT_EQ(daemon_->offers[1].session(), session_->id());
}

TEST_F(ScaleOffers, OfRanksThatCountWhatTheyWriteToADisk_SayThatTheyStay) {
  options_.zero.state_disk.endurance_bytes = 1;
  EXPECT_EQ(scaling_->Poll(base::MonotonicNow()), 0);
  ASSERT_THAT(daemon_->offers, SizeIs(1));
  EXPECT_THAT(daemon_->offers[0].why_not(), HasSubstr("--state-disk-endurance"));
}

// Such an offer takes as long as the daemon may take to answer, and the step waits for it.
TEST_F(ScaleOffers, ToADaemonThatDoesNotAnswer_AreRare) {
  daemon_->answer = [](const auto&, auto*) {
    return grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "it hangs");
  };
  const absl::Time now = base::MonotonicNow();
  EXPECT_EQ(scaling_->Poll(now), 0);
  EXPECT_EQ(scaling_->Poll(now + absl::Seconds(9)), 0);
  EXPECT_THAT(daemon_->offers, SizeIs(1));
  EXPECT_EQ(scaling_->Poll(base::MonotonicNow() + absl::Seconds(10)), 0);
  EXPECT_THAT(daemon_->offers, SizeIs(2));
}

TEST_F(ScaleOffers, OfARefusalThatTheDaemonRejects_AreNotRepeated) {
  AskForFour();
  context_.check_ranks = [&](int) {
    daemon_->answer = [](const auto&, auto*) {
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "it is too long");
    };
    return absl::InvalidArgumentError("the batch stays");
  };
  EXPECT_EQ(scaling_->Poll(base::MonotonicNow()), 0);
  ASSERT_THAT(daemon_->offers, SizeIs(2));
  EXPECT_EQ(daemon_->offers[1].number(), 5u);
  EXPECT_EQ(daemon_->offers[1].state(), "refused");
  EXPECT_THAT(daemon_->offers[1].message(),
              HasSubstr("the batch stays; the job goes on as before"));
  EXPECT_EQ(scaling_->Poll(base::MonotonicNow() + absl::Seconds(10)), 0);
  ASSERT_THAT(daemon_->offers, SizeIs(3));
  EXPECT_EQ(daemon_->offers[2].number(), 0u);
}

TEST_F(ScaleOffers, OfARefusalThatTheDaemonMissed_AreRepeated) {
  AskForFour();
  context_.check_ranks = [&](int) {
    daemon_->answer = [](const auto&, auto*) {
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "it restarts");
    };
    return absl::InvalidArgumentError("the batch stays");
  };
  EXPECT_EQ(scaling_->Poll(base::MonotonicNow()), 0);
  EXPECT_EQ(scaling_->Poll(base::MonotonicNow() + absl::Seconds(10)), 0);
  ASSERT_THAT(daemon_->offers, SizeIs(3));
  EXPECT_EQ(daemon_->offers[2].number(), 5u);
  EXPECT_EQ(daemon_->offers[2].state(), "refused");
}

// Otherwise the requester would wait for a minute.
TEST_F(ScaleOffers, AtTheEndOfTheRun_RefuseARequestThatCameAfterTheLast) {
  EXPECT_EQ(scaling_->Poll(base::MonotonicNow()), 0);
  AskForFour();
  scaling_->Close();
  ASSERT_THAT(daemon_->offers, SizeIs(3));
  EXPECT_EQ(daemon_->offers[1].why_not(), "the run ends");  // for later requests
  EXPECT_EQ(daemon_->offers[2].number(), 5u);
  EXPECT_EQ(daemon_->offers[2].state(), "refused");
  EXPECT_EQ(daemon_->offers[2].message(), "the run ends");
}

TEST_F(ScaleOffers, AtTheEndOfTheRun_AreMadeOnceWhereNobodyHasAsked) {
  scaling_->Close();
  ASSERT_THAT(daemon_->offers, SizeIs(1));
  EXPECT_EQ(daemon_->offers[0].why_not(), "the run ends");
}

TEST_F(ScaleOffers, AtTheEndOfTheRun_RefuseARequestThatWasTaken) {
  context_.info.world_size = 8;
  AskForFour();
  EXPECT_EQ(scaling_->Poll(base::MonotonicNow()), 4);
  scaling_->Close();
  ASSERT_THAT(daemon_->offers, SizeIs(2));
  EXPECT_EQ(daemon_->offers[1].number(), 5u);
  EXPECT_EQ(daemon_->offers[1].state(), "refused");
}

// The new ranks have the state, and are asked to end before they train.
TEST_F(ScaleOffers, AtAnEndBeforeTheFirstStep_TellOfTheChange) {
  ASSERT_TRUE(
      context_.handover->Begin({.request = 7, .ranks_before = 2, .ranks_after = 1, .bytes = 1}, 1)
          .ok());
  context_.handover->Complete();
  scaling_->Close();
  ASSERT_THAT(daemon_->offers, SizeIs(1));
  EXPECT_EQ(daemon_->offers[0].number(), 7u);
  EXPECT_EQ(daemon_->offers[0].state(), "refused");
  EXPECT_EQ(context_.handover->untold_request(), 0u);
}

// The text is UTF-8, and protobuf accepts only whole characters.
TEST_F(ScaleOffers, WithALongMessage_HaveItsBeginning) {
  AskForFour();
  std::string words = "x";
  for (int i = 0; i < 1000; ++i) words += "ä";
  context_.check_ranks = [&](int) { return absl::InvalidArgumentError(words); };
  EXPECT_EQ(scaling_->Poll(base::MonotonicNow()), 0);
  ASSERT_THAT(daemon_->offers, SizeIs(2));
  EXPECT_EQ(daemon_->offers[1].message(), words.substr(0, 1023));
}

// Until then the new ranks may still fail, and the run would continue with the old number.
TEST_F(ScaleOffers, ThatAChangeIsDone_AreMadeAfterTheFirstStep) {
  ASSERT_TRUE(
      context_.handover->Begin({.request = 7, .ranks_before = 2, .ranks_after = 1, .bytes = 1}, 1)
          .ok());
  context_.handover->Complete();
  EXPECT_EQ(scaling_->Poll(base::MonotonicNow()), 0);
  EXPECT_THAT(daemon_->offers, IsEmpty());
  scaling_->AfterStep(1);
  ASSERT_THAT(daemon_->offers, SizeIs(1));
  EXPECT_EQ(daemon_->offers[0].number(), 7u);
  EXPECT_EQ(daemon_->offers[0].state(), "done");
  EXPECT_TRUE(context_.handover->complete().has_value());
  scaling_->AfterStep(2);
  EXPECT_THAT(daemon_->offers, SizeIs(1));
  EXPECT_FALSE(context_.handover->complete().has_value());
}

TEST_F(ScaleOffers, ThatAChangeFailed_AreMadeByTheOldNumber) {
  ASSERT_TRUE(
      context_.handover->Begin({.request = 7, .ranks_before = 1, .ranks_after = 2, .bytes = 1}, 1)
          .ok());
  context_.handover->Complete();
  scaling_->AfterStep(1);
  ASSERT_THAT(daemon_->offers, SizeIs(1));
  EXPECT_EQ(daemon_->offers[0].state(), "refused");
  EXPECT_THAT(daemon_->offers[0].message(), HasSubstr("the job goes on as 1 rank,"));
}

// --- to another host ---

// A user asks for a move to beta; only the first answer says so.
void AskForBeta(Daemon* daemon) {
  daemon->answer = [](const v1::OfferScaleRequest& offer, v1::OfferScaleResponse* response) {
    if (offer.number() == 0) {
      response->set_number(5);
      response->set_ranks(1);
      response->set_host("beta");
    }
    return grpc::Status::OK;
  };
}

TEST_F(ScaleOffers, OfARunWithStateOnDisk_RefuseAnotherHostWithTheReason) {
  options_.zero.state_disk.folders = {"/nvme"};
  AskForBeta(&*daemon_);
  EXPECT_EQ(scaling_->Poll(base::MonotonicNow()), 0);
  ASSERT_THAT(daemon_->offers, SizeIs(2));
  EXPECT_EQ(daemon_->offers[1].state(), "refused");
  EXPECT_THAT(daemon_->offers[1].message(), HasSubstr("its --state-disk has"));
  EXPECT_EQ(context_.handover->wanted(), std::nullopt);
}

TEST_F(ScaleOffers, AtTheEndOfTheRun_RefuseAnotherHostOfWhichTheLauncherHasNotHeard) {
  AskForBeta(&*daemon_);
  EXPECT_EQ(scaling_->Poll(base::MonotonicNow()), 0) << "the host is not ready";
  scaling_->Close();
  ASSERT_THAT(daemon_->offers, SizeIs(2));
  EXPECT_EQ(daemon_->offers[1].state(), "refused");
  EXPECT_EQ(daemon_->offers[1].message(), "the run ends");
}

// Both hosts have the state, and these ranks run on the original host.
TEST_F(ScaleOffers, OfAMoveThatFailed_HaveTheLaunchersReason) {
  ASSERT_TRUE(context_.handover
                  ->Begin({.request = 7,
                           .ranks_before = 1,
                           .ranks_after = 1,
                           .bytes = 1,
                           .began = {},
                           .host = "beta",
                           .words = {}},
                          1)
                  .ok());
  context_.handover->Complete();
  context_.handover->Answer(7, absl::UnavailableError("rank 0 was lost with its host"));
  scaling_->AfterStep(1);
  ASSERT_THAT(daemon_->offers, SizeIs(1));
  EXPECT_EQ(daemon_->offers[0].number(), 7u);
  EXPECT_EQ(daemon_->offers[0].state(), "refused");
  EXPECT_THAT(daemon_->offers[0].message(),
              HasSubstr("the run did not go on at beta: rank 0 was lost with its host; the job "
                        "goes on as 1 rank"));
}

}  // namespace
}  // namespace geminid::trainer
