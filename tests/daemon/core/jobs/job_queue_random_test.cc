// Jobs of random sizes come, run, yield and end. After every decision the test compares the
// promises with sums of its own.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

#include "daemon/core/jobs/job_queue.h"

namespace geminid::core {
namespace {

constexpr uint64_t kDeviceBytes = 100;
constexpr uint64_t kHostBytes = 200;
constexpr uint64_t kGuaranteed = 20;  // guaranteed to uid:3 on each device

// The test's own data of a rank.
struct TestRank {
  SessionId session{};
  RankRequest ask;
  std::map<Account, uint64_t> charged;
  bool asked_to_yield = false;
};
struct TestJob {
  std::string tenant;
  RankRequest common;
  std::vector<TestRank> ranks;
  bool was_admitted = false;
  bool running = false;
  Time admitted_at;
  bool held = false;
  bool yielded = false;  // yielded once: it may pass jobs that wait for its memory
};

class World {
 public:
  explicit World(uint32_t seed) : random_(seed) {}

  void Act() {
    now_ = now_ + Duration::Seconds(Pick(5));
    switch (Pick(9)) {
      case 0:
      case 1:
        return Come();
      case 2:
        return EndOne(/*whole=*/true);
      case 3:
        if (Pick(4) == 0) EndOne(/*whole=*/false);  // one rank dies
        return;
      case 4:
        return YieldOne();
      case 5:
        if (Pick(4) == 0) queue_.SetDrained(Pick(2) == 0);
        return;
      case 6:
        return HoldOne();
      default:
        return ChargeOne();
    }
  }

  // Takes all decisions that are due, and checks them.
  void Decide() {
    const std::map<SessionId, std::pair<size_t, JobStatus>> before = Standings();
    const JobActions actions = queue_.Decide(now_);
    std::map<size_t, size_t> admitted;
    for (const SessionId session : actions.admitted) {
      TestJob& job = jobs_.at(job_of_.at(session));
      ++admitted[job_of_.at(session)];
      job.running = job.was_admitted = true;
      job.admitted_at = now_;
      for (TestRank& rank : job.ranks) rank.asked_to_yield = false;
    }
    // Jobs are admitted as a whole.
    for (const auto& [index, ranks] : admitted) ASSERT_EQ(ranks, jobs_.at(index).common.ranks);
    for (const SessionId session : actions.asked_to_yield) {
      const TestJob& job = jobs_.at(job_of_.at(session));
      ASSERT_TRUE(job.running && job.common.preemptible);
      // No rank is asked for an arena that it lacks, nor before all ranks could have made theirs.
      ASSERT_TRUE(HasArena(RankOf(session)));
      for (const TestRank& rank : job.ranks) {
        ASSERT_TRUE(rank.asked_to_yield || HasArena(rank) || IsLate(job));
      }
      RankOf(session).asked_to_yield = true;
    }
    ForgetUndone();
    NotePreempted();
    CheckPromises();
    for (const auto& [index, ranks] : admitted) CheckNobodyWasPassed(index);
  }

  // No more jobs come, and all present jobs run to their end.
  void Finish() {
    queue_.SetDrained(false);
    for (const JobSnapshot& job : queue_.Jobs()) ASSERT_TRUE(queue_.LetGo(job.id).ok());
    for (int round = 0; round < 2000 && !jobs_.empty(); ++round) {
      now_ = now_ + Duration::Seconds(61);  // incomplete jobs are given up
      Decide();
      for (auto& [index, job] : jobs_) {
        for (TestRank& rank : job.ranks) {
          if (rank.asked_to_yield) Yield(&job, &rank);
        }
      }
      Decide();
      for (auto& [index, job] : jobs_) {
        if (!job.running) continue;
        End(index);
        break;
      }
    }
    for (const JobSnapshot& job : queue_.Jobs()) {
      ADD_FAILURE() << "job " << job.name.run << " of " << job.name.tenant
                    << " was never admitted (" << Name(job.standing.state)
                    << "): " << job.standing.reason;
    }
    EXPECT_TRUE(jobs_.empty());
  }

  uint64_t admissions = 0;
  uint64_t yields = 0;
  uint64_t withdrawn = 0;

 private:
  size_t Pick(size_t count) { return random_() % count; }

  static bool HasArena(const TestRank& rank) {
    const auto charged = rank.charged.find(DeviceAccount(rank.ask.device));
    return rank.ask.device_bytes == 0 || (charged != rank.charged.end() && charged->second > 0);
  }

  bool IsLate(const TestJob& job) const {
    return now_ - job.admitted_at >= JobQueueOptions().yield_time;
  }

  // Jobs whose arenas never came lose their promises without a request.
  void NotePreempted() {
    for (auto& [index, job] : jobs_) {
      const bool preempted =
          queue_.StandingOf(job.ranks.front().session)->state == JobState::kPreempted;
      if (!preempted || !job.running) continue;
      ASSERT_TRUE(job.common.preemptible);
      for (const TestRank& rank : job.ranks) {
        ASSERT_TRUE(HasArena(rank) || IsLate(job));
        const auto charged = rank.charged.find(DeviceAccount(rank.ask.device));
        ASSERT_TRUE(charged == rank.charged.end() || charged->second == 0);
      }
      job.running = false;
      job.yielded = true;
      ++withdrawn;
    }
  }

  std::map<SessionId, std::pair<size_t, JobStatus>> Standings() {
    std::map<SessionId, std::pair<size_t, JobStatus>> standings;
    for (const auto& [session, index] : job_of_) {
      const absl::StatusOr<JobStatus> standing = queue_.StandingOf(session);
      if (standing.ok()) standings[session] = {index, *standing};
    }
    return standings;
  }

  TestRank& RankOf(SessionId session) {
    for (TestRank& rank : jobs_.at(job_of_.at(session)).ranks) {
      if (rank.session == session) return rank;
    }
    ADD_FAILURE();
    return jobs_.begin()->second.ranks.front();
  }

  // The operator moves a job off its device, or releases it.
  void HoldOne() {
    const std::vector<JobSnapshot> jobs = queue_.Jobs();
    if (jobs.empty()) return;
    const JobSnapshot& job = jobs[Pick(jobs.size())];
    const bool may = job.preemptible || job.standing.state != JobState::kRunning;
    TestJob& known = jobs_.at(std::stoul(job.name.run));
    if (Pick(2) == 0) {
      ASSERT_TRUE(queue_.LetGo(job.id).ok());
      known.held = false;
    } else {
      ASSERT_EQ(queue_.Hold(job.id).ok(), may);
      known.held = known.held || may;
    }
  }

  void Come() {
    TestJob job;
    job.tenant = "uid:" + std::to_string(1 + Pick(3));
    job.common.ranks = static_cast<uint32_t>(1 + Pick(3));
    job.common.priority = static_cast<int32_t>(Pick(3)) - 1;
    job.common.preemptible = Pick(2) == 0;
    const size_t index = next_job_++;
    const bool all_come = Pick(8) > 0;
    for (uint32_t r = 0; r < job.common.ranks - (all_come ? 0 : 1); ++r) {
      TestRank rank;
      rank.session = SessionId{next_session_++};
      rank.ask = job.common;
      rank.ask.rank = static_cast<int32_t>(r);
      rank.ask.device = DeviceIndex{static_cast<uint32_t>(Pick(2))};
      rank.ask.device_bytes = Pick(60);
      rank.ask.host_bytes = Pick(60);
      ASSERT_TRUE(
          queue_.Join(rank.session, {job.tenant, "job", std::to_string(index)}, rank.ask, now_)
              .ok());
      job_of_[rank.session] = index;
      job.ranks.push_back(rank);
    }
    if (!job.ranks.empty()) jobs_[index] = job;
  }

  void GiveBack(TestJob* job, TestRank* rank, Account account) {
    const uint64_t bytes = std::exchange(rank->charged[account], 0);
    ASSERT_TRUE(ledger_.TakeBack(account, bytes).ok());
    ASSERT_TRUE(quota_.Return(job->tenant, account, bytes).ok());
    queue_.Returned(rank->session, account, bytes);
  }

  void EndRank(TestJob* job, TestRank* rank) {
    queue_.Leave(rank->session, now_);
    GiveBack(job, rank, kHostAccount);
    GiveBack(job, rank, DeviceAccount(rank->ask.device));
    job_of_.erase(rank->session);
  }

  void End(size_t index) {
    TestJob job = jobs_.at(index);
    jobs_.erase(index);
    for (TestRank& rank : job.ranks) EndRank(&job, &rank);
  }

  void EndOne(bool whole) {
    if (jobs_.empty()) return;
    auto at = std::next(jobs_.begin(), static_cast<int64_t>(Pick(jobs_.size())));
    if (whole) return End(at->first);
    TestJob& job = at->second;
    EndRank(&job, &job.ranks.back());
    job.ranks.pop_back();
    // The other ranks end too, once they notice.
    if (job.was_admitted || job.ranks.empty()) End(at->first);
  }

  void Yield(TestJob* job, TestRank* rank) {
    rank->asked_to_yield = false;
    job->running = false;
    job->yielded = true;
    ++yields;
    queue_.Yielded(rank->session, now_);
    GiveBack(job, rank, DeviceAccount(rank->ask.device));
  }

  void YieldOne() {
    for (auto& [index, job] : jobs_) {
      for (TestRank& rank : job.ranks) {
        if (rank.asked_to_yield && Pick(2) == 0) return Yield(&job, &rank);
      }
    }
  }

  // A rank of a running job takes some of its promised memory, or sometimes more.
  void ChargeOne() {
    for (auto& [index, job] : jobs_) {
      if (!job.running || Pick(2) == 0) continue;
      for (TestRank& rank : job.ranks) {
        if (rank.asked_to_yield) continue;
        const bool host = Pick(2) == 0;
        const Account account = host ? kHostAccount : DeviceAccount(rank.ask.device);
        // The engine refuses arenas to a job that was not admitted.
        const JobState state = queue_.StandingOf(rank.session)->state;
        if (!host && state != JobState::kRunning) continue;
        const uint64_t ask = host ? rank.ask.host_bytes : rank.ask.device_bytes;
        const uint64_t left = ask - std::min(ask, rank.charged[account]);
        const uint64_t bytes = Pick(4) == 0 ? left + Pick(10) : left;
        const uint64_t available = queue_.AvailableBytes(rank.session, job.tenant, account);
        ASSERT_GE(available, left);  // promised memory is always available
        if (bytes > available) continue;
        ASSERT_TRUE(ledger_.HandOut(account, bytes).ok());
        ASSERT_TRUE(quota_.TryCharge(job.tenant, account, bytes));
        rank.charged[account] += bytes;
        queue_.Charged(rank.session, account, bytes);
      }
    }
  }

  void ForgetUndone() {
    for (auto at = jobs_.begin(); at != jobs_.end();) {
      const SessionId first = at->second.ranks.front().session;
      if (queue_.StandingOf(first).ok()) {
        ++at;
        continue;
      }
      ASSERT_FALSE(at->second.was_admitted);
      for (const TestRank& rank : at->second.ranks) {
        ASSERT_FALSE(queue_.StandingOf(rank.session).ok());  // all ranks of a job or none
        queue_.Leave(rank.session, now_);
        job_of_.erase(rank.session);
      }
      at = jobs_.erase(at);
    }
  }

  // By account: memory that was promised and is not taken yet. It is promised to running jobs, and
  // the host memory also to jobs that yielded.
  std::map<std::pair<std::string, Account>, uint64_t> Promised() {
    std::map<std::pair<std::string, Account>, uint64_t> promised;
    for (auto& [index, job] : jobs_) {
      if (!job.was_admitted) continue;
      for (TestRank& rank : job.ranks) {
        const auto add = [&](Account account, uint64_t ask) {
          promised[{job.tenant, account}] += ask - std::min(ask, rank.charged[account]);
        };
        add(kHostAccount, rank.ask.host_bytes);
        const bool on_device = queue_.StandingOf(rank.session)->state == JobState::kRunning;
        if (on_device) add(DeviceAccount(rank.ask.device), rank.ask.device_bytes);
      }
    }
    return promised;
  }

  // No memory is over-committed: all jobs could take their promises and guarantees at once.
  void CheckPromises() {
    std::map<Account, uint64_t> owed;
    std::map<std::pair<std::string, Account>, uint64_t> promised = Promised();
    for (uint32_t device : {0u, 1u}) {
      const Account account = DeviceAccount(DeviceIndex{device});
      uint64_t& of_three = promised[{"uid:3", account}];
      const uint64_t held = quota_.ChargedBytes("uid:3", account);
      of_three = std::max(of_three, kGuaranteed - std::min(kGuaranteed, held));
    }
    for (const auto& [key, bytes] : promised) owed[key.second] += bytes;
    for (const auto& [account, bytes] : owed) {
      ASSERT_LE(bytes, ledger_.Totals(account).free_bytes) << Name(account);
    }
    for (const auto& [key, bytes] : promised) {
      ASSERT_LE(bytes, quota_.FreeBytes(key.first, key.second)) << key.first;
    }
    admissions += 1;
  }

  // First come, first served within a priority. A job that came earlier and still waits must not
  // want memory that this job got, beyond the memory that is left.
  void CheckNobodyWasPassed(size_t index) {
    if (!jobs_.contains(index)) return;
    std::map<Account, uint64_t> free;
    for (const Account account : ledger_.Accounts()) {
      free[account] = ledger_.Totals(account).free_bytes;
    }
    for (const auto& [key, bytes] : Promised()) free[key.second] -= bytes;
    for (const auto& [other_index, other] : jobs_) {
      const absl::StatusOr<JobStatus> standing = queue_.StandingOf(other.ranks.front().session);
      const bool waits = standing.ok() && standing->state == JobState::kQueued;
      if (!waits || other_index > index || queue_.drained() || other.tenant == "uid:2" ||
          other.held || other.common.priority != jobs_.at(index).common.priority ||
          jobs_.at(index).yielded) {
        continue;
      }
      std::map<Account, uint64_t> wants;
      for (const TestRank& rank : other.ranks) {
        wants[kHostAccount] += rank.ask.host_bytes;
        wants[DeviceAccount(rank.ask.device)] += rank.ask.device_bytes;
      }
      for (const TestRank& rank : jobs_.at(index).ranks) {
        const Account device = DeviceAccount(rank.ask.device);
        if (rank.ask.device_bytes > 0) {
          ASSERT_LE(wants[device], free[device]) << "passed on " << Name(device);
        }
        if (rank.ask.host_bytes > 0) {
          ASSERT_LE(wants[kHostAccount], free[kHostAccount]) << "passed on the host";
        }
      }
    }
  }

  std::mt19937 random_;
  Time now_ = Time() + Duration::Seconds(1000);
  Ledger ledger_{{kDeviceBytes, kDeviceBytes}, kHostBytes};
  Quota quota_{{{.tenant = "uid:2", .host_bytes = 120, .device_bytes = 70},
                {.tenant = "uid:3", .guaranteed_device_bytes = kGuaranteed}}};
  JobQueue queue_{&ledger_, &quota_, {.ageing = Duration::Seconds(200)}};
  std::map<size_t, TestJob> jobs_;
  std::map<SessionId, size_t> job_of_;
  size_t next_job_ = 0;
  uint64_t next_session_ = 1;
};

TEST(JobQueueRandomTest, RandomJobs_AreNeverOverCommittedPassedHalvedOrStarved) {
  uint64_t yields = 0;
  uint64_t withdrawn = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    for (int i = 0; i < 200 && !::testing::Test::HasFatalFailure(); ++i) {
      world.Act();
      world.Decide();
    }
    if (!::testing::Test::HasFatalFailure()) world.Finish();
    if (::testing::Test::HasFailure()) return;
    yields += world.yields;
    withdrawn += world.withdrawn;
  }
  EXPECT_GT(yields, 100u);
  EXPECT_GT(withdrawn, 20u);
}

}  // namespace
}  // namespace geminid::core
