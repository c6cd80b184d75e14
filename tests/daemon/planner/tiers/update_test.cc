#include "daemon/planner/tiers/update.h"

#include <gtest/gtest.h>

#include <vector>

namespace geminid::planner {
namespace {

UpdateJob HostJob(double cpu, double needed_at = 0) {
  UpdateJob job;
  job.cost.cpu = cpu;
  job.needed_at = needed_at;
  return job;
}

TEST(FinishUpdates, HostJobs_AreAPipelineOfKernelAndWayUp) {
  std::vector<UpdateJob> jobs(3, HostJob(2));
  for (UpdateJob& job : jobs) job.cost.up = 5;
  EXPECT_EQ(FinishUpdates(jobs), (std::vector<double>{7, 12, 17}));
  for (UpdateJob& job : jobs) job.cost.up = 1;
  EXPECT_EQ(FinishUpdates(jobs), (std::vector<double>{3, 5, 7}));
}

TEST(FinishUpdates, HostMemoryTheBottleneck_PacesTheJobs) {
  std::vector<UpdateJob> jobs(3, HostJob(1));
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
  const std::vector<UpdateJob> jobs = {HostJob(2, 1), HostJob(2, 9), HostJob(2, 3)};
  EXPECT_EQ(ExposedSeconds(jobs), 3);
  EXPECT_EQ(ExposedSeconds({HostJob(2, 2)}), 0);
}

}  // namespace
}  // namespace geminid::planner
