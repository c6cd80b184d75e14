// Several jobs at one daemon, with clients without the library: admission, the end of jobs,
// draining.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "daemon/service/entry/daemon.h"
#include "geminid/v1/job.grpc.pb.h"
#include "geminid/v1/session.grpc.pb.h"
#include "proto/shm/attach_messages.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/daemon_env/raw_client.h"

namespace geminid::service {
namespace {

using ::geminid::testing::DaemonEnv;
using ::geminid::testing::GoodHello;
using ::geminid::testing::RawClient;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kMiB = uint64_t{1} << 20;

class Jobs : public ::testing::Test {
 protected:
  void SetUp() override { Start({}); }

  void Start(geminid::testing::DaemonEnvOptions options) {
    options.host_memory = "64MiB";
    options.device_memory = "64MiB";
    ASSERT_TRUE(env_.Start(options).ok());
    channel_ = geminid::testing::NewChannel(env_.socket());
    jobs_ = v1::JobService::NewStub(channel_);
  }

  std::unique_ptr<RawClient> Attach(const std::string& job, int rank = 0, int ranks = 1) {
    shm::Hello hello = GoodHello();
    std::fill(std::begin(hello.job), std::end(hello.job), '\0');
    job.copy(hello.job, sizeof(hello.job) - 1);
    hello.rank = hello.local_rank = rank;
    hello.world_size = hello.local_world_size = ranks;
    absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(env_.socket(), hello);
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }

  static v1::AdmitRequest Ask(uint64_t device_bytes, uint32_t ranks = 1) {
    v1::AdmitRequest request;
    request.set_ranks(ranks);
    request.set_device_bytes(device_bytes);
    request.set_may_wait(true);
    return request;
  }

  grpc::Status Admit(RawClient& client, const v1::AdmitRequest& request) {
    grpc::ClientContext context;
    client.Authenticate(&context);
    return v1::SessionService::NewStub(client.channel())->Admit(&context, request, &standing_);
  }

  // The daemon sees the end of another client with a delay.
  void AskUntilAdmitted(RawClient& client, const v1::AdmitRequest& request) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    do {
      ASSERT_TRUE(Admit(client, request).ok());
    } while (!standing_.admitted() && std::chrono::steady_clock::now() < give_up);
  }

  grpc::Status MakeArena(RawClient& client, uint64_t bytes) {
    v1::CreateArenaRequest request;
    request.set_bytes(bytes);
    v1::CreateArenaResponse response;
    grpc::ClientContext context;
    client.Authenticate(&context);
    const grpc::Status status =
        v1::SessionService::NewStub(client.channel())->CreateArena(&context, request, &response);
    // The metadata distinguishes this error from the end of a connection.
    EXPECT_EQ(context.GetServerTrailingMetadata().count(shm::kMeantMetadataKey),
              status.error_code() == grpc::StatusCode::UNAVAILABLE ? 1u : 0u);
    return status;
  }

  grpc::Status ReleaseArena(RawClient& client) {
    v1::ReleaseArenaResponse response;
    grpc::ClientContext context;
    client.Authenticate(&context);
    return v1::SessionService::NewStub(client.channel())
        ->ReleaseArena(&context, v1::ReleaseArenaRequest(), &response);
  }

  v1::ListJobsResponse List() {
    v1::ListJobsResponse response;
    grpc::ClientContext context;
    EXPECT_TRUE(jobs_->ListJobs(&context, v1::ListJobsRequest(), &response).ok());
    return response;
  }

  v1::DrainResponse Drain(bool undo) {
    v1::DrainRequest request;
    request.set_undo(undo);
    v1::DrainResponse response;
    grpc::ClientContext context;
    EXPECT_TRUE(jobs_->Drain(&context, request, &response).ok());
    return response;
  }

  uint64_t FreeDeviceBytes() {
    return env_.daemon().hub().Inspect([](const core::Engine& engine, const auto&) {
      return engine.ledger().Totals(core::DeviceAccount(core::DeviceIndex{0})).free_bytes;
    });
  }

  DaemonEnv env_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  v1::AdmitResponse standing_;
};

TEST_F(Jobs, RanksOfAJob_AreAdmittedTogether) {
  const auto first = Attach("train", 0, 2);
  ASSERT_TRUE(Admit(*first, Ask(24 * kMiB, 2)).ok());
  EXPECT_FALSE(standing_.admitted());
  EXPECT_EQ(standing_.state(), "gathering");
  const grpc::Status early = MakeArena(*first, 24 * kMiB);
  EXPECT_EQ(early.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(early.error_message(), HasSubstr("1 of its 2 ranks"));
  const auto second = Attach("train", 1, 2);
  ASSERT_TRUE(Admit(*second, Ask(24 * kMiB, 2)).ok());
  EXPECT_TRUE(standing_.admitted());
  ASSERT_TRUE(Admit(*first, Ask(24 * kMiB, 2)).ok());
  EXPECT_TRUE(standing_.admitted());
  EXPECT_TRUE(MakeArena(*first, 24 * kMiB).ok());
  const v1::ListJobsResponse jobs = List();
  ASSERT_EQ(jobs.jobs_size(), 1);
  EXPECT_EQ(jobs.jobs(0).ranks_present(), 2u);
  EXPECT_EQ(jobs.jobs(0).state(), "running");
  EXPECT_EQ(jobs.jobs(0).device_bytes(0).bytes(), 24 * kMiB);
}

TEST_F(Jobs, WhatWasPromisedToAJob_NobodyElseGets) {
  const auto waiting = Attach("promised");
  ASSERT_TRUE(Admit(*waiting, Ask(48 * kMiB)).ok());
  const auto other = Attach("other");
  const grpc::Status refused = MakeArena(*other, 24 * kMiB);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(),
              AllOf(HasSubstr("free 16.0 MiB"), HasSubstr("48.0 MiB are promised to other jobs")));
  EXPECT_TRUE(MakeArena(*waiting, 48 * kMiB).ok());
  EXPECT_TRUE(MakeArena(*other, 16 * kMiB).ok());
}

TEST_F(Jobs, RefusalOfTheOnlyJob_SpeaksOfItsRanksAndOfNoOtherJob) {
  const auto first = Attach("alone", 0, 2);
  const auto second = Attach("alone", 1, 2);
  ASSERT_TRUE(Admit(*first, Ask(24 * kMiB, 2)).ok());
  ASSERT_TRUE(Admit(*second, Ask(24 * kMiB, 2)).ok());
  const grpc::Status refused = MakeArena(*second, 48 * kMiB);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(),
              AllOf(HasSubstr("24.0 MiB are promised to the other ranks of this job"),
                    HasSubstr("use fewer ranks, ask for less, or raise device_memory"),
                    Not(HasSubstr("tenants")), Not(HasSubstr("queue"))));
}

TEST_F(Jobs, JobThatDoesNotFitNow_WaitsForTheOthersEnd) {
  auto first = Attach("first");
  ASSERT_TRUE(Admit(*first, Ask(48 * kMiB)).ok());
  ASSERT_TRUE(MakeArena(*first, 48 * kMiB).ok());
  const auto second = Attach("second");
  ASSERT_TRUE(Admit(*second, Ask(32 * kMiB)).ok());
  EXPECT_EQ(standing_.state(), "queued");
  EXPECT_EQ(standing_.position(), 1u);
  EXPECT_THAT(standing_.reason(), HasSubstr("needs 32.0 MiB of device 0"));
  first.reset();
  AskUntilAdmitted(*second, Ask(32 * kMiB));
  EXPECT_TRUE(standing_.admitted());
}

TEST_F(Jobs, PriorityAboveTheTenants_IsRefused) {
  const auto client = Attach("train");
  v1::AdmitRequest request = Ask(kMiB);
  request.set_priority(1);
  const grpc::Status refused = Admit(*client, request);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(refused.error_message(), AllOf(HasSubstr("0 at most"), HasSubstr("max_priority")));
}

TEST_F(Jobs, LowerPriority_IsAskedForItsArenaAndComesBack) {
  const auto low = Attach("low");
  v1::AdmitRequest ask = Ask(48 * kMiB);
  ask.set_priority(-1);
  ask.set_preemptible(true);
  ASSERT_TRUE(Admit(*low, ask).ok());
  ASSERT_TRUE(MakeArena(*low, 48 * kMiB).ok());
  EXPECT_EQ(low->state()->header.yield.load(), 0u);
  auto high = Attach("high");
  ASSERT_TRUE(Admit(*high, Ask(32 * kMiB)).ok());
  EXPECT_FALSE(standing_.admitted());
  EXPECT_EQ(low->state()->header.yield.load(), 1u);
  ASSERT_TRUE(ReleaseArena(*low).ok());
  EXPECT_EQ(FreeDeviceBytes(), 64 * kMiB);
  ASSERT_TRUE(Admit(*high, Ask(32 * kMiB)).ok());
  EXPECT_TRUE(standing_.admitted());
  ASSERT_TRUE(Admit(*low, ask).ok());
  EXPECT_EQ(standing_.state(), "preempted");
  EXPECT_EQ(MakeArena(*low, 48 * kMiB).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  high.reset();
  AskUntilAdmitted(*low, ask);
  EXPECT_EQ(low->state()->header.yield.load(), 0u);
  EXPECT_TRUE(MakeArena(*low, 48 * kMiB).ok());
}

TEST_F(Jobs, DrainedDaemon_AdmitsNobodyNew) {
  const auto there = Attach("there");
  ASSERT_TRUE(Admit(*there, Ask(kMiB)).ok());
  v1::DrainResponse drained = Drain(false);
  EXPECT_TRUE(drained.drained());
  EXPECT_EQ(drained.jobs(), 1u);
  const auto late = Attach("late");
  ASSERT_TRUE(Admit(*late, Ask(kMiB)).ok());
  EXPECT_EQ(standing_.state(), "queued");
  EXPECT_THAT(standing_.reason(), HasSubstr("drains"));
  const auto unasked = Attach("unasked");
  const grpc::Status refused = MakeArena(*unasked, kMiB);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(refused.error_message(), HasSubstr("drain --undo"));
  EXPECT_TRUE(MakeArena(*there, kMiB).ok());
  EXPECT_FALSE(Drain(true).drained());
  ASSERT_TRUE(Admit(*late, Ask(kMiB)).ok());
  EXPECT_TRUE(standing_.admitted());
  EXPECT_TRUE(MakeArena(*unasked, kMiB).ok());
}

TEST_F(Jobs, EndJob_EndsItsSessionsAndFreesTheirMemory) {
  const auto first = Attach("train", 0, 2);
  const auto second = Attach("train", 1, 2);
  const auto other = Attach("other");
  ASSERT_TRUE(MakeArena(*first, 16 * kMiB).ok());
  ASSERT_TRUE(MakeArena(*second, 16 * kMiB).ok());
  v1::EndJobRequest request;
  request.set_job("train");
  v1::EndJobResponse response;
  {
    grpc::ClientContext context;  // they are told, and may end in order
    ASSERT_TRUE(jobs_->EndJob(&context, request, &response).ok());
  }
  EXPECT_EQ(first->state()->header.phase.load(), static_cast<uint32_t>(shm::Phase::kEnded));
  EXPECT_EQ(FreeDeviceBytes(), 32 * kMiB);
  request.set_now(true);
  grpc::ClientContext context;
  ASSERT_TRUE(jobs_->EndJob(&context, request, &response).ok());
  EXPECT_EQ(response.sessions(), 2u);
  EXPECT_EQ(response.bytes(), 32 * kMiB);
  EXPECT_EQ(FreeDeviceBytes(), 64 * kMiB);
  EXPECT_EQ(first->state()->header.phase.load(), static_cast<uint32_t>(shm::Phase::kEnded));
  EXPECT_EQ(List().jobs_size(), 1);
  grpc::ClientContext again;
  EXPECT_EQ(jobs_->EndJob(&again, request, &response).error_code(), grpc::StatusCode::NOT_FOUND);
}

// For ranks of the run that are started again before they hear of the end.
TEST_F(Jobs, EndJob_OfAllRuns_IsKnownToRanksThatAreStartedAgain) {
  shm::Hello hello = GoodHello();
  std::fill(std::begin(hello.run), std::end(hello.run), '\0');
  std::string("run-1").copy(hello.run, sizeof(hello.run) - 1);
  const auto rank = RawClient::Attach(env_.socket(), hello);
  ASSERT_TRUE(rank.ok()) << rank.status();
  const auto was_ended = [&](const std::string& run) {
    v1::WasEndedRequest request;
    request.set_job(hello.job);
    request.set_run(run);
    v1::WasEndedResponse response;
    grpc::ClientContext context;
    EXPECT_TRUE(jobs_->WasEnded(&context, request, &response).ok());
    return response.ended();
  };
  EXPECT_FALSE(was_ended("run-1"));
  v1::EndJobRequest request;
  request.set_job(hello.job);
  v1::EndJobResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(jobs_->EndJob(&context, request, &response).ok());
  EXPECT_TRUE(was_ended("run-1"));
  EXPECT_FALSE(was_ended("run-2"));
}

TEST_F(Jobs, EndJob_OfARun_LeavesTheOthersOfItsName) {
  const auto attach = [&](const char* run) {
    shm::Hello hello = GoodHello();
    std::fill(std::begin(hello.run), std::end(hello.run), '\0');
    std::string(run).copy(hello.run, sizeof(hello.run) - 1);
    return RawClient::Attach(env_.socket(), hello);
  };
  const auto first = attach("one"), second = attach("two");
  ASSERT_TRUE(first.ok() && second.ok());
  const std::string job = List().jobs(0).job();
  v1::EndJobRequest request;
  request.set_job(job);
  request.set_run("one");
  request.set_now(true);
  v1::EndJobResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(jobs_->EndJob(&context, request, &response).ok());
  EXPECT_EQ(response.sessions(), 1u);
  grpc::ClientContext again;
  EXPECT_EQ(jobs_->EndJob(&again, request, &response).error_code(), grpc::StatusCode::NOT_FOUND);
  ASSERT_EQ(List().jobs_size(), 1);
  EXPECT_EQ(List().jobs(0).sessions_size(), 1);
}

TEST_F(Jobs, OfferScale_OfAnotherJobsSession_IsRefused) {
  const auto mine = Attach("mine"), other = Attach("other");
  v1::OfferScaleRequest offer;
  offer.set_job("mine");
  offer.set_session(other->welcome().session_id);
  offer.set_ranks(1);
  v1::OfferScaleResponse response;
  grpc::ClientContext context;
  EXPECT_EQ(jobs_->OfferScale(&context, offer, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
  offer.set_session(mine->welcome().session_id);
  grpc::ClientContext good;
  EXPECT_TRUE(jobs_->OfferScale(&good, offer, &response).ok());
  EXPECT_EQ(response.number(), 0u);
}

TEST_F(Jobs, ScaleJob_OfAJobThatIsThere_ReachesItsRank) {
  const auto rank = Attach("mine");
  v1::ScaleJobRequest request;
  request.set_job("mine");
  request.set_ranks(2);
  v1::ScaleRequest scale;
  const auto ask = [&] {
    grpc::ClientContext context;
    return jobs_->ScaleJob(&context, request, &scale);
  };
  EXPECT_EQ(ask().error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  v1::OfferScaleRequest offer;
  offer.set_job("mine");
  offer.set_session(rank->welcome().session_id);
  offer.set_ranks(1);
  v1::OfferScaleResponse response;
  grpc::ClientContext first, second, third;
  ASSERT_TRUE(jobs_->OfferScale(&first, offer, &response).ok());
  const grpc::Status asked = ask();
  ASSERT_TRUE(asked.ok()) << asked.error_message();
  ASSERT_TRUE(jobs_->OfferScale(&second, offer, &response).ok());
  EXPECT_EQ(response.number(), scale.number());
  EXPECT_EQ(response.ranks(), 2u);
  v1::GetScaleRequest get;
  get.set_number(scale.number());
  ASSERT_TRUE(jobs_->GetScale(&third, get, &scale).ok());
  EXPECT_EQ(scale.state(), "asked");
  request.set_job("nobody");
  EXPECT_EQ(ask().error_code(), grpc::StatusCode::NOT_FOUND);
}

// The ranks that EndJob finds may be about to leave, and the change starts others after them.
TEST_F(Jobs, EndJob_DuringAChangeOfRanks_EndsTheRanksThatFollow) {
  auto leaving = Attach("mine");
  v1::OfferScaleRequest offer;
  offer.set_job("mine");
  offer.set_ranks(1);
  v1::OfferScaleResponse response;
  const auto make_offer = [&](const RawClient& rank) {
    offer.set_session(rank.welcome().session_id);
    grpc::ClientContext context;
    EXPECT_TRUE(jobs_->OfferScale(&context, offer, &response).ok());
  };
  make_offer(*leaving);
  v1::ScaleJobRequest request;
  request.set_job(offer.job());
  request.set_ranks(2);
  v1::ScaleRequest scale;
  grpc::ClientContext ask;
  ASSERT_TRUE(jobs_->ScaleJob(&ask, request, &scale).ok());
  offer.set_number(scale.number());
  offer.set_state("taken");
  make_offer(*leaving);
  v1::EndJobRequest end;
  end.set_job(offer.job());
  v1::EndJobResponse ended;
  grpc::ClientContext to_end;
  ASSERT_TRUE(jobs_->EndJob(&to_end, end, &ended).ok());
  leaving.reset();
  const auto another = Attach("mine"), follower = Attach("mine");
  offer.set_state("done");
  make_offer(*follower);
  const auto phase_of = [](const RawClient& rank) {
    return static_cast<shm::Phase>(rank.state()->header.phase.load());
  };
  EXPECT_EQ(phase_of(*follower), shm::Phase::kEnded);
  EXPECT_NE(phase_of(*another), shm::Phase::kEnded) << "a run that the user has started since";
}

// The ranks that took the request are gone, and their replacements have not attached yet.
TEST_F(Jobs, EndJob_BetweenTwoGroupsOfRanks_SaysThatOthersCome) {
  auto rank = Attach("mine");
  v1::OfferScaleRequest offer;
  offer.set_job("mine");
  offer.set_session(rank->welcome().session_id);
  offer.set_ranks(1);
  v1::OfferScaleResponse response;
  grpc::ClientContext first, second, third;
  ASSERT_TRUE(jobs_->OfferScale(&first, offer, &response).ok());
  v1::ScaleJobRequest request;
  request.set_job("mine");
  request.set_ranks(2);
  v1::ScaleRequest scale;
  ASSERT_TRUE(jobs_->ScaleJob(&second, request, &scale).ok());
  offer.set_number(scale.number());
  offer.set_state("taken");
  ASSERT_TRUE(jobs_->OfferScale(&third, offer, &response).ok());
  rank.reset();
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (List().jobs_size() > 0 && std::chrono::steady_clock::now() < give_up) {
  }
  v1::EndJobRequest end;
  end.set_job("mine");
  v1::EndJobResponse ended;
  grpc::ClientContext fourth, fifth, sixth, seventh;
  const grpc::Status none = jobs_->EndJob(&fourth, end, &ended);
  EXPECT_EQ(none.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(none.error_message(), HasSubstr("it changes from 1 to 2 ranks"));
  end.set_run("the ranks before");  // replacement ranks end what is left of this run
  EXPECT_EQ(jobs_->EndJob(&fifth, end, &ended).error_code(), grpc::StatusCode::NOT_FOUND);
  const auto next = Attach("mine");
  end.set_run("");
  EXPECT_TRUE(jobs_->EndJob(&sixth, end, &ended).ok());
  v1::GetScaleRequest get;
  get.set_number(scale.number());
  ASSERT_TRUE(jobs_->GetScale(&seventh, get, &scale).ok());
  EXPECT_EQ(scale.state(), "refused");
}

TEST_F(Jobs, EvictJob_OfOneThatCannotYield_IsRefused) {
  const auto client = Attach("train");
  ASSERT_TRUE(MakeArena(*client, kMiB).ok());
  v1::EvictJobRequest request;
  request.set_job("train");
  v1::EvictJobResponse response;
  grpc::ClientContext context;
  const grpc::Status refused = jobs_->EvictJob(&context, request, &response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), HasSubstr("end it instead"));
}

TEST_F(Jobs, JobsOfOtherTenants_AreNotTouched) {
  env_.Stop();
  geminid::testing::DaemonEnvOptions options;
  options.identify = [](const os::Peer&) { return Identity{.tenant = "uid:4711"}; };
  Start(options);
  v1::EndJobRequest request;
  request.set_job("train");
  request.set_tenant("uid:1");
  v1::EndJobResponse response;
  grpc::ClientContext context;
  EXPECT_EQ(jobs_->EndJob(&context, request, &response).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  v1::EvictJobRequest evict;
  evict.set_job("train");
  evict.set_tenant("uid:1");
  v1::EvictJobResponse evicted;
  grpc::ClientContext evict_context;
  EXPECT_EQ(jobs_->EvictJob(&evict_context, evict, &evicted).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  v1::DrainResponse drained;
  grpc::ClientContext drain_context;
  EXPECT_EQ(jobs_->Drain(&drain_context, v1::DrainRequest(), &drained).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  v1::ScaleJobRequest scale;
  scale.set_job("train");
  scale.set_tenant("uid:1");
  scale.set_ranks(2);
  v1::ScaleRequest scaled;
  grpc::ClientContext scale_context;
  EXPECT_EQ(jobs_->ScaleJob(&scale_context, scale, &scaled).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(Jobs, ScaleJob_OfAJobThatIsNotThere_IsNotFoundAutomaticallyOrNot) {
  for (const uint32_t ranks : {0u, 2u}) {  // 0: the daemon chooses
    v1::ScaleJobRequest request;
    request.set_job("nope");
    request.set_ranks(ranks);
    v1::ScaleRequest scale;
    grpc::ClientContext context;
    const grpc::Status status = jobs_->ScaleJob(&context, request, &scale);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND) << ranks;
    EXPECT_THAT(status.error_message(), HasSubstr("there is no job nope")) << ranks;
  }
}

TEST_F(Jobs, GetScale_OfAnotherTenantsRequest_IsRefused) {
  env_.Stop();
  std::atomic<int> tenant = 1;
  geminid::testing::DaemonEnvOptions options;
  options.identify = [&](const os::Peer&) {
    return Identity{.tenant = absl::StrCat("uid:", tenant.load())};
  };
  Start(options);
  const auto rank = Attach("mine");
  v1::OfferScaleRequest offer;
  offer.set_job("mine");
  offer.set_session(rank->welcome().session_id);
  offer.set_ranks(1);
  v1::OfferScaleResponse response;
  grpc::ClientContext offered, asked, foreign;
  ASSERT_TRUE(jobs_->OfferScale(&offered, offer, &response).ok());
  v1::ScaleJobRequest request;
  request.set_job("mine");
  request.set_ranks(2);
  v1::ScaleRequest scale;
  ASSERT_TRUE(jobs_->ScaleJob(&asked, request, &scale).ok());
  v1::GetScaleRequest get;
  get.set_number(scale.number());
  tenant = 2;
  const auto stranger = v1::JobService::NewStub(geminid::testing::NewChannel(env_.socket()));
  EXPECT_EQ(stranger->GetScale(&foreign, get, &scale).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  env_.Stop();  // stopping also asks for tenants
}

}  // namespace
}  // namespace geminid::service
