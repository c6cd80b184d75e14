#include "base/machine_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/base/temporary_folder.h"

namespace geminid::base {
namespace {

TEST(KilobytesField, OfTheNamedLine_IsInBytes) {
  const std::string text = "MemTotal:       24593012 kB\nMemFree: 12 kB\nHugePages_Free:    0\n";
  EXPECT_EQ(KilobytesField(text, "MemTotal"), uint64_t{24593012} * 1024);
  EXPECT_EQ(KilobytesField(text, "MemFree"), uint64_t{12} * 1024);
  EXPECT_EQ(KilobytesField(text, "Mem"), std::nullopt);
  EXPECT_EQ(KilobytesField(text, "HugePages_Free"), std::nullopt);
  EXPECT_EQ(KilobytesField("", "MemTotal"), std::nullopt);
}

TEST(MachineMemory, IsAtMostTheRam) {
  const auto ram = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                   static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  EXPECT_LE(TotalMemoryBytes(), ram);
  EXPECT_LE(AvailableMemoryBytes(), ram);
  EXPECT_GT(TotalMemoryBytes(), 0u);
}

// A tree of cgroups: files by path below a temporary folder.
class Cgroups : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = folder_.path() + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  base::TemporaryFolder folder_;
};

TEST_F(Cgroups, LimitOfAnAncestor_Counts) {
  Write("a/b/memory.max", "max\n");
  Write("a/b/memory.current", "100\n");
  Write("a/memory.max", "1000\n");
  Write("a/memory.current", "700\n");
  Write("a/memory.stat", "anon 300\nshmem 200\ninactive_file 100\nactive_file 50\n");
  const CgroupMemory memory = ReadCgroupMemory("0::/a/b\n", folder_.path());
  EXPECT_EQ(memory.limit_bytes, 1000u);
  EXPECT_EQ(memory.available_bytes, 450u);  // page cache may go
}

TEST_F(Cgroups, LowestOfSeveral_Counts) {
  Write("a/b/memory.max", "500\n");
  Write("a/b/memory.current", "100\n");
  Write("a/memory.max", "1000\n");
  Write("a/memory.current", "950\n");
  const CgroupMemory memory = ReadCgroupMemory("0::/a/b\n", folder_.path());
  EXPECT_EQ(memory.limit_bytes, 500u);
  EXPECT_EQ(memory.available_bytes, 50u);
}

TEST_F(Cgroups, Version1_IsReadToo) {
  Write("memory/a/memory.limit_in_bytes", "2000\n");
  Write("memory/a/memory.usage_in_bytes", "500\n");
  Write("memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("memory/memory.usage_in_bytes", "5000\n");
  const CgroupMemory memory = ReadCgroupMemory("5:cpu:/a\n4:memory:/a\n0::/a\n", folder_.path());
  EXPECT_EQ(memory.limit_bytes, 2000u);
  EXPECT_EQ(memory.available_bytes, 1500u);
  Write("memory/a/memory.stat", "active_file 1\ntotal_inactive_file 100\ntotal_active_file 200\n");
  EXPECT_EQ(ReadCgroupMemory("4:memory:/a\n", folder_.path()).available_bytes, 1800u);
}

TEST_F(Cgroups, WithoutALimit_SayNothing) {
  EXPECT_FALSE(ReadCgroupMemory("0::/a/b\n", folder_.path()).limit_bytes.has_value());
  EXPECT_FALSE(ReadCgroupMemory("", folder_.path()).limit_bytes.has_value());
  EXPECT_FALSE(ReadCgroupMemory("0::/\n", folder_.path()).available_bytes.has_value());
}

TEST_F(Cgroups, MemoryHigh_CountsAsALimit) {
  Write("a/memory.max", "1000\n");
  Write("a/memory.high", "800\n");
  Write("a/memory.current", "300\n");
  const CgroupMemory memory = ReadCgroupMemory("0::/a\n", folder_.path());
  EXPECT_EQ(memory.limit_bytes, 800u);
  EXPECT_EQ(memory.available_bytes, 500u);
}

// A container of a pod: the pod's cgroup, which has the limit, is outside of its tree.
TEST_F(Cgroups, OfVersion1AboveTheContainers_AreSeenInItsStatistics) {
  Write("memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("memory/memory.usage_in_bytes", "100\n");
  Write("memory/memory.stat", "total_inactive_file 0\nhierarchical_memory_limit 700\n");
  const CgroupMemory memory =
      ReadCgroupMemory("4:hugetlb,memory:/kubepods/pod/c\n", folder_.path());
  EXPECT_EQ(memory.limit_bytes, 700u);
  EXPECT_EQ(memory.available_bytes, 600u);
}

}  // namespace
}  // namespace geminid::base
