#include "base/processors.h"

#include <gtest/gtest.h>
#include <sched.h>

#include "tests/base/temporary_folder.h"

namespace geminid::base {
namespace {

TEST(AllowedProcessors, AreThoseOfTheAffinity) {
  const std::vector<int> all = AllowedProcessors();
  ASSERT_FALSE(all.empty());
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_EQ(all.size(), static_cast<size_t>(CPU_COUNT(&before)));
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(all.back()), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(AllowedProcessors(), std::vector<int>{all.back()});
  sched_setaffinity(0, sizeof(before), &before);
}

class Quota : public testing::Test {
 protected:
  std::optional<double> Of() const { return ProcessorQuota(folder_.path()); }
  const TemporaryFolder folder_;
};

TEST_F(Quota, WithoutControlGroups_IsUnset) { EXPECT_FALSE(Of().has_value()); }

TEST_F(Quota, OfVersion2_IsTheLeastOnTheWayUp) {
  folder_.Write("proc/self/cgroup", "0::/a.slice/b.scope\n");
  EXPECT_FALSE(Of().has_value());
  folder_.Write("sys/fs/cgroup/a.slice/b.scope/cpu.max", "max 100000\n");
  EXPECT_FALSE(Of().has_value());
  folder_.Write("sys/fs/cgroup/a.slice/cpu.max", "350000 100000\n");
  EXPECT_EQ(Of(), 3.5);
  folder_.Write("sys/fs/cgroup/a.slice/b.scope/cpu.max", "50000 100000\n");
  EXPECT_EQ(Of(), 0.5);
  folder_.Write("sys/fs/cgroup/cpu.max", "20000 100000\n");
  EXPECT_EQ(Of(), 0.2);
}

TEST_F(Quota, InAContainer_IsThatOfTheRootItSees) {
  folder_.Write("proc/self/cgroup", "0::/\n");
  folder_.Write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(Of(), 2);
  // The group has the host's name, which the container's mount does not have.
  folder_.Write("proc/self/cgroup", "0::/kubepods/pod1\n");
  EXPECT_EQ(Of(), 2);
}

TEST_F(Quota, OfVersion1_IsThatOfTheProcessorsController) {
  folder_.Write("proc/self/cgroup", "3:memory:/m\n2:cpu,cpuacct:/job\n1:cpuset:/other\n");
  folder_.Write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  folder_.Write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(Of().has_value());
  folder_.Write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "150000\n");
  EXPECT_EQ(Of(), 1.5);
}

TEST_F(Quota, ThatIsNoNumber_IsUnset) {
  folder_.Write("proc/self/cgroup", "nonsense\n0:\n0::relative\n0::/a\n");
  folder_.Write("sys/fs/cgroup/a/cpu.max", "many 0\n");
  folder_.Write("sys/fs/cgroup/cpu.max", "100000 0\n");
  EXPECT_FALSE(Of().has_value());
}

}  // namespace
}  // namespace geminid::base
