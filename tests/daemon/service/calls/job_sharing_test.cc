// The daemon shares its node among jobs that report their goodput with other numbers of ranks. The
// jobs are clients without the library, which report themselves.
#include "daemon/service/calls/job_sharing.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "daemon/service/entry/daemon.h"
#include "daemon/service/tenants/limits.h"
#include "daemon/service/tenants/tenant_log.h"
#include "daemon/service/watch/vitals.h"
#include "geminid/v1/job.grpc.pb.h"
#include "geminid/v1/session.grpc.pb.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/daemon_env/raw_client.h"

namespace geminid::service {
namespace {

using ::geminid::testing::RawClient;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kRankBytes = 8 * kMiB;
constexpr char kTenant[] = "uid:1";
constexpr absl::Duration kPatience = absl::Seconds(60);

class JobSharingTest : public ::testing::Test {
 protected:
  void SetUp() override { Start({}); }

  void Start(geminid::testing::DaemonEnvOptions options) {
    env_.Stop();
    options.host_memory = "64MiB";
    options.device_memory = "64MiB";
    if (options.sharing_interval.empty()) options.sharing_interval = "50ms";
    options.sharing_ranks = 4;
    options.identify = [](const os::Peer&) { return Identity{.tenant = kTenant}; };
    ASSERT_TRUE(env_.Start(options).ok());
    jobs_ = v1::JobService::NewStub(geminid::testing::NewChannel(env_.socket()));
  }

  std::unique_ptr<RawClient> Attach(const std::string& job, int rank = 0, int ranks = 1) {
    shm::Hello hello = geminid::testing::GoodHello();
    hello.rank = hello.local_rank = rank;
    hello.world_size = hello.local_world_size = ranks;
    std::fill(std::begin(hello.job), std::end(hello.job), '\0');
    job.copy(hello.job, sizeof(hello.job) - 1);
    absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(env_.socket(), hello);
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }

  // Whether the job may run.
  bool Admit(RawClient& client, uint64_t device_bytes, uint32_t ranks = 1) {
    v1::AdmitRequest request;
    request.set_ranks(ranks);
    request.set_device_bytes(device_bytes);
    request.set_may_wait(true);
    v1::AdmitResponse standing;
    grpc::ClientContext context;
    client.Authenticate(&context);
    const auto stub = v1::SessionService::NewStub(client.channel());
    EXPECT_TRUE(stub->Admit(&context, request, &standing).ok());
    return standing.admitted();
  }

  void MakeArena(RawClient& client, uint64_t device_bytes) {
    v1::CreateArenaRequest request;
    request.set_bytes(device_bytes);
    v1::CreateArenaResponse response;
    grpc::ClientContext context;
    client.Authenticate(&context);
    const auto stub = v1::SessionService::NewStub(client.channel());
    EXPECT_TRUE(stub->CreateArena(&context, request, &response).ok());
  }

  // A job whose only rank has an arena.
  std::unique_ptr<RawClient> Begin(const std::string& job, uint64_t device_bytes) {
    return std::move(BeginRanks(job, 1, device_bytes).front());
  }

  // A job whose ranks have an arena each.
  std::vector<std::unique_ptr<RawClient>> BeginRanks(const std::string& job, int ranks,
                                                     uint64_t rank_bytes) {
    std::vector<std::unique_ptr<RawClient>> clients;
    const auto count = static_cast<uint32_t>(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      clients.push_back(Attach(job, rank, ranks));
      Admit(*clients.back(), rank_bytes, count);  // when the last rank has asked
    }
    for (const auto& client : clients) {
      EXPECT_TRUE(Admit(*client, rank_bytes, count));
      MakeArena(*client, rank_bytes);
    }
    return clients;
  }

  // An offer of a job with 1 to `most` ranks, whose goodput is proportional to them.
  static v1::OfferScaleRequest Shared(const RawClient& client, const std::string& job,
                                      uint32_t ranks, uint32_t most) {
    v1::OfferScaleRequest offer;
    offer.set_session(client.welcome().session_id);
    offer.set_job(job);
    offer.set_ranks(ranks);
    for (uint32_t r = 1; r <= most; ++r) {
      v1::RanksRow* const row = offer.mutable_share()->add_rows();
      row->set_ranks(r);
      row->set_device_bytes(r * kRankBytes);
      row->set_goodput(r);
    }
    return offer;
  }

  v1::OfferScaleResponse Offer(const v1::OfferScaleRequest& offer) {
    v1::OfferScaleResponse response;
    grpc::ClientContext context;
    const grpc::Status status = jobs_->OfferScale(&context, offer, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  // Offers as often as a job does, until the daemon makes a request or `is_enough`.
  v1::OfferScaleResponse OfferUntil(
      const v1::OfferScaleRequest& offer,
      const std::function<bool()>& is_enough = [] { return false; }) {
    v1::OfferScaleResponse response;
    const absl::Time give_up = absl::Now() + kPatience;
    do {
      response = Offer(offer);
      absl::SleepFor(absl::Milliseconds(5));
    } while (response.number() == 0 && !is_enough() && absl::Now() < give_up);
    return response;
  }

  std::string Why(const std::string& job) {
    v1::ListJobsResponse response;
    grpc::ClientContext context;
    EXPECT_TRUE(jobs_->ListJobs(&context, v1::ListJobsRequest(), &response).ok());
    for (const v1::JobInfo& info : response.jobs()) {
      if (info.job() == job) return info.has_sharing() ? info.sharing().why() : "not shared";
    }
    return "not there";
  }

  grpc::Status Scale(const std::string& job, uint32_t ranks) {
    v1::ScaleJobRequest request;
    request.set_job(job);
    request.set_ranks(ranks);
    v1::ScaleRequest scale;
    grpc::ClientContext context;
    return jobs_->ScaleJob(&context, request, &scale);
  }

  NodeView View(const std::vector<ScaleRequests::Shared>& shared, core::Duration later = {},
                core::Duration queue_ageing = core::Duration::Seconds(1800)) {
    const JobSharingOptions options = {.ranks = 4, .queue_ageing = queue_ageing};
    return env_.daemon().hub().Inspect([&](const core::Engine& engine, const auto&) {
      return ViewOf(engine, shared, {}, options, Now() + later);
    });
  }

  static ScaleRequests::Shared Said(const std::string& job, uint32_t ranks, uint32_t most) {
    ScaleRequests::Shared shared;
    shared.job = {kTenant, job};
    shared.ranks = ranks;
    for (uint32_t r = 1; r <= most; ++r) {
      v1::RanksRow* const row = shared.share.add_rows();
      row->set_ranks(r);
      row->set_device_bytes(r * kRankBytes);
      row->set_goodput(r);
    }
    return shared;
  }

  geminid::testing::DaemonEnv env_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
};

TEST_F(JobSharingTest, AJobThatIsAlone_IsAskedForTheRanksThatItLearnsFastestWith) {
  const auto a = Begin("a", kRankBytes);
  v1::OfferScaleRequest offer = Shared(*a, "a", 1, 8);
  const v1::OfferScaleResponse asked = OfferUntil(offer);
  EXPECT_EQ(asked.ranks(), 4u) << "as many as the node has room for";
  EXPECT_THAT(Why("a"), HasSubstr("it is asked for 4 ranks: it learns 300% faster with them"));
  offer.set_number(asked.number());
  offer.set_state("done");
  offer.set_ranks(4);
  Offer(offer);
  EXPECT_THAT(env_.MetricsPage(), HasSubstr("geminid_sharing_changes_total{outcome=\"done\"} 1\n"));
}

TEST_F(JobSharingTest, AJobThatRefuses_IsNotAskedAtOnce) {
  const auto a = Begin("a", kRankBytes);
  v1::OfferScaleRequest offer = Shared(*a, "a", 1, 8);
  const v1::OfferScaleResponse asked = OfferUntil(offer);
  ASSERT_EQ(asked.ranks(), 4u);
  offer.set_number(asked.number());
  offer.set_state("refused");
  offer.set_message("its log has failed");
  EXPECT_EQ(Offer(offer).number(), 0u);
  EXPECT_THAT(Why("a"), HasSubstr("asked for 4 ranks and refused: its log has failed"));
  EXPECT_THAT(env_.MetricsPage(),
              HasSubstr("geminid_sharing_changes_total{outcome=\"refused\"} 1\n"));
}

TEST_F(JobSharingTest, AJobThatDoesNotLetTheDaemonChoose_IsLeftAlone) {
  const auto a = Begin("a", kRankBytes);
  const auto fixed = Begin("fixed", kRankBytes);
  v1::OfferScaleRequest plain = Shared(*fixed, "fixed", 1, 8);
  plain.clear_share();
  EXPECT_EQ(Offer(plain).number(), 0u);
  EXPECT_EQ(OfferUntil(Shared(*a, "a", 1, 8)).ranks(), 3u) << "one rank of the node is taken";
  EXPECT_EQ(Offer(plain).number(), 0u);
  EXPECT_EQ(Why("fixed"), "not shared");
}

TEST_F(JobSharingTest, ANumberThatSomebodyAskedFor_StaysUntilTheDaemonMayChooseAgain) {
  auto a = Begin("a", kRankBytes);
  v1::OfferScaleRequest offer = Shared(*a, "a", 1, 8);
  Offer(offer);
  EXPECT_FALSE(Scale("nobody", 0).ok());
  while (!Scale("a", 2).ok()) {  // the daemon may have asked before
    const v1::OfferScaleResponse asked = OfferUntil(offer);
    v1::OfferScaleRequest refusal = offer;
    refusal.set_number(asked.number());
    refusal.set_state("refused");
    Offer(refusal);
  }
  const uint64_t number = OfferUntil(offer).number();
  a.reset();
  const auto two = BeginRanks("a", 2, kRankBytes);
  offer = Shared(*two.front(), "a", 2, 8);
  v1::OfferScaleRequest done = offer;
  done.set_number(number);
  done.set_state("done");
  Offer(done);
  const v1::OfferScaleResponse none =
      OfferUntil(offer, [&] { return Why("a").find("a user asked for that number") == 0; });
  EXPECT_EQ(none.number(), 0u);
  const grpc::Status released = Scale("a", 0);
  EXPECT_TRUE(released.ok()) << released.error_message();
  EXPECT_EQ(OfferUntil(offer).ranks(), 4u);
}

TEST_F(JobSharingTest, AJobThatWaitsForMemory_GetsThatOfAJobThatCanDoWithLess) {
  const auto a = BeginRanks("a", 4, 12 * kMiB);
  const auto waits = Attach("waits");
  ASSERT_FALSE(Admit(*waits, 4 * kRankBytes));
  const v1::OfferScaleResponse asked = OfferUntil(Shared(*a.front(), "a", 4, 4));
  EXPECT_LT(asked.ranks(), 4u);
  EXPECT_GE(asked.ranks(), 1u);
  EXPECT_THAT(Why("a"), HasSubstr("makes room for waits of uid:1, which waits for 32.0 MiB"));
}

// The group of ranks after a change would be a new job, which a drained node does not admit.
TEST_F(JobSharingTest, OfADrainedNode_ChangesNoRanks) {
  const auto a = Begin("a", kRankBytes);
  Offer(Shared(*a, "a", 1, 8));
  env_.daemon().hub().Drain(true);
  EXPECT_THAT(View({Said("a", 1, 4)}).jobs[0].fixed, HasSubstr("the node drains"));
  const grpc::Status refused = Scale("a", 2);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(refused.error_message(), HasSubstr("drain --undo"));
  env_.daemon().hub().Drain(false);
  EXPECT_EQ(View({Said("a", 1, 4)}).jobs[0].fixed, "");
}

TEST_F(JobSharingTest, AnOfferWithARowForEachNumber_IsTaken) {
  const auto a = Begin("a", kRankBytes);
  v1::OfferScaleRequest offer = Shared(*a, "a", 1, 64);
  offer.set_number(1);
  offer.set_state("refused");
  offer.set_message("why");
  offer.mutable_share()->set_why_not("it ends within 10 s");
  Offer(offer);
  EXPECT_NE(Why("a"), "not shared");
}

TEST_F(JobSharingTest, AnOfferWithANumberOfRanksThatNoJobHas_IsRefused) {
  const auto a = Begin("a", kRankBytes);
  for (const uint32_t ranks : {0u, 65537u}) {
    v1::OfferScaleResponse response;
    grpc::ClientContext context;
    const grpc::Status status = jobs_->OfferScale(&context, Shared(*a, "a", ranks, 8), &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << ranks;
    EXPECT_THAT(status.error_message(), HasSubstr("1 to 65536"));
  }
}

TEST_F(JobSharingTest, WithoutAnInterval_NothingIsChanged) {
  Start({.sharing_interval = "0s"});
  const auto a = Begin("a", kRankBytes);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Offer(Shared(*a, "a", 1, 8)).number(), 0u);
  EXPECT_THAT(Why("a"), HasSubstr("sharing_interval is 0"));
}

TEST_F(JobSharingTest, TheNumberThatAJobHas_IsKeptWhenSomebodyAsksForIt) {
  Start({.sharing_interval = "1h"});
  const auto a = Begin("a", kRankBytes);
  Offer(Shared(*a, "a", 1, 8));
  v1::ScaleJobRequest request;
  request.set_job("a");
  request.set_ranks(1);
  v1::ScaleRequest scale;
  grpc::ClientContext context;
  const grpc::Status status = jobs_->ScaleJob(&context, request, &scale);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(scale.state(), "done");
  EXPECT_EQ(scale.message(), "keeps the ranks that it has");
}

// --- decisions over time -------------------------------------------------------------------------

// The daemon's decisions on a clock of the test's own.
class JobSharingTimes : public JobSharingTest {
 protected:
  static constexpr uint64_t kNobody = 0;

  void SetUp() override {
    JobSharingTest::SetUp();
    JobSharingOptions options;
    options.ranks = 4;
    sharing_.emplace(options, &env_.daemon().hub(), &requests_, &log_, &counts_);
  }

  void Attached(const RawClient& client) {
    session_ = client.welcome().session_id;
    offer_ = Shared(client, "a", 1, 4);
    attached_ = {{session_, {kTenant, "a"}}};
  }

  // Offers every ten seconds. Returns the request that the job gets, or kNobody.
  uint64_t RunFor(int seconds) {
    uint64_t told = kNobody;
    for (int s = 0; s < seconds && told == kNobody; s += 10) {
      now_ = now_ + core::Duration::Seconds(10);
      told = Say("").number();
    }
    return told;
  }

  v1::OfferScaleResponse Say(const std::string& state, uint64_t number = 0) {
    v1::OfferScaleRequest offer = offer_;
    offer.set_number(number);
    offer.set_state(state);
    sharing_->Follow(attached_, now_);
    const v1::OfferScaleResponse response = requests_.Offer(kTenant, offer, attached_, now_);
    sharing_->Step({kTenant, "a"}, offer.ranks(), attached_, now_);
    return response;
  }

  Limits limits_{config::TenantShares{}};
  TenantLog log_{&limits_};
  SharingCounts counts_;
  ScaleRequests requests_;
  std::optional<JobSharing> sharing_;
  ScaleRequests::Sessions attached_;
  uint64_t session_ = 0;
  v1::OfferScaleRequest offer_;
  core::Time now_ = Now();
};

TEST_F(JobSharingTimes, AChangeThatHasBegun_IsWaitedForLonger) {
  const auto a = Begin("a", kRankBytes);
  Attached(*a);
  const uint64_t number = RunFor(200);
  ASSERT_NE(number, kNobody);
  Say("taken", number);
  RunFor(580);
  EXPECT_EQ(counts_.refused.load(), 0u);
  RunFor(100);
  EXPECT_EQ(counts_.refused.load(), 1u);
}

TEST_F(JobSharingTimes, ANumberThatSomebodyAskedFor_EndsWithTheRun) {
  const auto a = Begin("a", kRankBytes);
  Attached(*a);
  sharing_->Hold({kTenant, "a"}, 0, attached_, now_);
  EXPECT_EQ(RunFor(600), kNobody);
  attached_ = {{session_ + 1, {kTenant, "a"}}};  // a later run of the same name
  offer_.set_session(session_ + 1);
  now_ = now_ + core::Duration::Seconds(3600);
  EXPECT_NE(RunFor(200), kNobody);
}

TEST_F(JobSharingTimes, ANumberThatTheRanksRefused_HoldsNothing) {
  const auto a = Begin("a", kRankBytes);
  Attached(*a);
  Say("");
  v1::ScaleJobRequest wanted;
  wanted.set_job("a");
  wanted.set_ranks(2);
  const auto asked = requests_.Ask(kTenant, wanted, attached_, now_);
  ASSERT_TRUE(asked.ok()) << asked.status();
  sharing_->Hold({kTenant, "a"}, asked->number(), attached_, now_);
  Say("refused", asked->number());
  EXPECT_NE(RunFor(200), kNobody);
}

// --- the daemon's view ---------------------------------------------------------------------------

TEST_F(JobSharingTest, View_OfSharedAndOtherJobs_HasTheRoomOfTheShared) {
  const auto a = BeginRanks("a", 2, kRankBytes);
  const auto other = Begin("other", kRankBytes);
  const NodeView view = View({Said("a", 2, 4)});
  ASSERT_EQ(view.jobs.size(), 1u);
  EXPECT_EQ(view.jobs[0].memory_bytes, 2 * kRankBytes);
  EXPECT_EQ(view.jobs[0].fixed, "");
  EXPECT_EQ(view.jobs[0].guaranteed_bytes, 0u);
  EXPECT_EQ(view.room.memory_bytes, 7 * kRankBytes);
  EXPECT_EQ(view.room.ranks, 3u);
}

TEST_F(JobSharingTest, View_OfAJobThatWaits_RaisesItsPriorityWithTheTime) {
  const auto a = BeginRanks("a", 4, 12 * kMiB);
  const auto waits = Attach("waits");
  ASSERT_FALSE(Admit(*waits, 4 * kRankBytes));
  const core::Duration level = core::Duration::Seconds(60);
  NodeView view = View({Said("a", 4, 4)}, core::Duration::Seconds(30), level);
  ASSERT_EQ(view.jobs.size(), 2u);
  EXPECT_EQ(view.jobs[1].ranks, 0u);
  EXPECT_EQ(view.jobs[1].memory_bytes, 4 * kRankBytes);
  EXPECT_EQ(view.jobs[1].priority, 0);
  view = View({Said("a", 4, 4)}, core::Duration::Seconds(150), level);
  EXPECT_EQ(view.jobs[1].priority, 2);
}

TEST_F(JobSharingTest, View_OfATenantWithAGuarantee_KeepsItsRoomForItsJobs) {
  geminid::testing::DaemonEnvOptions options;
  options.quotas = {{.tenant = kTenant, .guaranteed_device_bytes = 4 * kRankBytes},
                    {.tenant = "uid:2", .guaranteed_device_bytes = 2 * kRankBytes}};
  Start(options);
  const auto a = Begin("a", kRankBytes), other = Begin("other", kRankBytes);
  const NodeView view = View({Said("a", 1, 8)});
  ASSERT_EQ(view.jobs.size(), 1u);
  EXPECT_EQ(view.jobs[0].guaranteed_bytes, 3 * kRankBytes) << "the other job has one of them";
  EXPECT_EQ(view.room.memory_bytes, 5 * kRankBytes) << "two are of uid:2, one is taken";
}

// A job's false report takes nothing from others.
TEST_F(JobSharingTest, View_OfAJobThatSaysAFalseNumberOfRanks_HasThoseOfTheLedger) {
  const auto a = BeginRanks("a", 2, kRankBytes);
  for (const uint32_t said : {1u, 65536u}) {
    const NodeView view = View({Said("a", said, 4)});
    ASSERT_EQ(view.jobs.size(), 1u);
    EXPECT_EQ(view.jobs[0].ranks, 2u);
    EXPECT_THAT(view.jobs[0].fixed, HasSubstr("the daemon has handed out memory for 2 ranks"));
  }
  EXPECT_EQ(View({Said("a", 2, 4)}).jobs[0].fixed, "");
}

// The job has given its memory back, and waits like others.
TEST_F(JobSharingTest, View_OfASharedJobThatWaits_MakesRoomForIt) {
  const auto first = Begin("first", 6 * kRankBytes);
  const auto a = Attach("a");
  ASSERT_FALSE(Admit(*a, 4 * kRankBytes));
  const NodeView view = View({Said("first", 1, 4), Said("a", 1, 4)});
  ASSERT_EQ(view.jobs.size(), 2u);
  EXPECT_EQ(view.jobs[1].key.job, "a");
  EXPECT_EQ(view.jobs[1].ranks, 0u);
  EXPECT_EQ(view.jobs[1].memory_bytes, 4 * kRankBytes);
}

TEST_F(JobSharingTest, View_OfManyJobsThatWait_HasTheFirstOnes) {
  const auto a = Begin("a", 8 * kRankBytes);
  std::vector<std::unique_ptr<RawClient>> waiting;
  for (int i = 0; i < 40; ++i) {
    waiting.push_back(Attach("w" + std::to_string(i)));
    ASSERT_FALSE(Admit(*waiting.back(), kRankBytes));
  }
  const NodeView view = View({Said("a", 1, 4)});
  ASSERT_EQ(view.jobs.size(), 33u);
  EXPECT_EQ(view.jobs[1].key.job, "w0");
  EXPECT_EQ(view.jobs[32].key.job, "w31");
}

TEST_F(JobSharingTest, View_OfAJobThatCannotBeChanged_SaysWhy) {
  const auto a = Begin("a", kRankBytes);
  ScaleRequests::Shared busy = Said("a", 1, 4);
  busy.why_not = "it ends within 10 s";
  EXPECT_EQ(View({busy}).jobs[0].fixed, "it ends within 10 s");
  const auto unasked = Attach("unasked");
  MakeArena(*unasked, kRankBytes);
  EXPECT_EQ(View({Said("unasked", 1, 4)}).jobs[0].fixed, "it did not ask for admission");
}

}  // namespace
}  // namespace geminid::service
