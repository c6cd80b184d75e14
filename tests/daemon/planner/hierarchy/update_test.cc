#include "daemon/planner/hierarchy/update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace geminid::planner {
namespace {

UpdateJob HostJob(double gradient_at, double cpu, double device, double needed_at = 0) {
  UpdateJob job;
  job.cost.cpu = cpu;
  job.cost.device = device;
  job.gradient_at = gradient_at;
  job.needed_at = needed_at;
  return job;
}

std::vector<UpdateJob> RandomJobs(std::mt19937& random, bool in_backward) {
  std::vector<UpdateJob> jobs;
  const std::size_t count = 1 + random() % 9;
  double at = in_backward ? -static_cast<double>(random() % 100) : 0;
  double needed = 0;
  for (std::size_t i = 0; i < count; ++i) {
    jobs.push_back(
        HostJob(at, 1 + random() % 20, 0.25 * static_cast<double>(random() % 8), needed));
    if (in_backward) at = std::min(0.0, at + static_cast<double>(random() % 20));
    needed += static_cast<double>(random() % 25);
  }
  return jobs;
}

TEST(FinishUpdates, HostJobs_AreAPipelineOfKernelAndWayUp) {
  std::vector<UpdateJob> jobs(3, HostJob(0, 2, 0));
  for (UpdateJob& job : jobs) job.cost.up = 5;
  EXPECT_EQ(FinishUpdates(jobs), (std::vector<double>{7, 12, 17}));
  for (UpdateJob& job : jobs) job.cost.up = 1;
  EXPECT_EQ(FinishUpdates(jobs), (std::vector<double>{3, 5, 7}));
}

TEST(FinishUpdates, HostMemoryTheBottleneck_PacesTheJobs) {
  std::vector<UpdateJob> jobs(3, HostJob(0, 1, 0));
  for (UpdateJob& job : jobs) job.cost.memory = 10;
  EXPECT_EQ(FinishUpdates(jobs), (std::vector<double>{10, 20, 30}));
}

TEST(FinishUpdates, StreamedJobs_WaitForABuffer) {
  UpdateJob job;
  job.place = OptimizerPlace::kStreamed;
  job.cost.up = 1;
  job.cost.device = 1;
  job.cost.down = 10;
  // Buffers return at 12, 22, 32, ...: the fourth chunk goes up when the first buffer is back.
  const std::vector<double> finish = FinishUpdates(std::vector<UpdateJob>(5, job));
  EXPECT_EQ(finish, (std::vector<double>{2, 3, 4, 14, 24}));
}

TEST(ExposedSeconds, LateJob_DelaysByItsLateness) {
  const std::vector<UpdateJob> jobs = {HostJob(0, 2, 0, 1), HostJob(0, 2, 0, 9),
                                       HostJob(0, 2, 0, 3)};
  EXPECT_EQ(ExposedSeconds(jobs), 3);
  EXPECT_EQ(ExposedSeconds({HostJob(-5, 2, 0, 0)}), 0);
}

TEST(SmallestDeviceTail, RandomPipelines_IsTheSmallestThatSatisfiesTheRule) {
  std::mt19937 random(1);
  int none = 0;
  int some = 0;
  for (int k = 0; k < 2000; ++k) {
    const std::vector<UpdateJob> jobs = RandomJobs(random, /*in_backward=*/true);
    // The rule word for word: all but the last n run through the pipeline, and the device updates
    // n.
    std::size_t smallest = jobs.size();
    for (std::size_t n = 0; n < jobs.size() && smallest == jobs.size(); ++n) {
      double finish = -1e9;
      for (std::size_t i = 0; i + n < jobs.size(); ++i) {
        finish = std::max(finish, jobs[i].gradient_at) + jobs[i].cost.cpu;
      }
      double device = 0;
      for (std::size_t i = jobs.size() - n; i < jobs.size(); ++i) device += jobs[i].cost.device;
      if (finish <= device) smallest = n;
    }
    ASSERT_EQ(SmallestDeviceTail(jobs), smallest);
    ++(smallest == 0 ? none : some);
  }
  EXPECT_GT(none, 100);
  EXPECT_GT(some, 100);
}

TEST(SmallestDeviceHead, RandomPipelines_IsTheSmallestThatLeavesNobodyLate) {
  std::mt19937 random(2);
  int none = 0;
  int some = 0;
  for (int k = 0; k < 2000; ++k) {
    const std::vector<UpdateJob> jobs = RandomJobs(random, /*in_backward=*/false);
    std::size_t smallest = jobs.size();
    for (std::size_t n = 0; n < jobs.size() && smallest == jobs.size(); ++n) {
      double device = 0;
      for (std::size_t i = 0; i < n; ++i) device += jobs[i].cost.device;
      double finish = 0;
      bool late = false;
      for (std::size_t i = n; i < jobs.size(); ++i) {
        finish += jobs[i].cost.cpu;
        late = late || finish > jobs[i].needed_at + device;
      }
      if (!late) smallest = n;
    }
    ASSERT_EQ(SmallestDeviceHead(jobs), smallest);
    ++(smallest == 0 || smallest == jobs.size() ? none : some);
  }
  EXPECT_GT(some, 100);
}

}  // namespace
}  // namespace geminid::planner
