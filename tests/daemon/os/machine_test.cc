#include "daemon/os/machine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/base/temporary_folder.h"

namespace geminid::os {
namespace {

TEST(Machine, KilobytesField_ReadsTheNamedLine) {
  const std::string text = "MemTotal:       24593012 kB\nMemFree: 12 kB\nHugePages_Free:    0\n";
  EXPECT_EQ(KilobytesField(text, "MemTotal"), uint64_t{24593012} * 1024);
  EXPECT_EQ(KilobytesField(text, "MemFree"), uint64_t{12} * 1024);
  EXPECT_EQ(KilobytesField(text, "Mem"), std::nullopt);
  EXPECT_EQ(KilobytesField(text, "HugePages_Free"), std::nullopt);
  EXPECT_EQ(KilobytesField("", "MemTotal"), std::nullopt);
}

TEST(Machine, BracketedWord_IsTheChosenOne) {
  EXPECT_EQ(BracketedWord("always inherit advise [never]\n"), "never");
  EXPECT_EQ(BracketedWord("[always] madvise never"), "always");
  EXPECT_EQ(BracketedWord("nothing"), "");
}

TEST(Machine, Read_AgreesWithSysconf) {
  const Machine machine = ReadMachine();
  const auto expected = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                        static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  EXPECT_EQ(machine.ram_bytes, expected);
  EXPECT_FALSE(machine.nodes.empty());
  EXPECT_LE(AvailableMemoryBytes(), machine.ram_bytes);
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

TEST(Machine, Facts_SayWhyNot) {
  Machine machine;
  machine.huge_pages.shmem_enabled = "never";
  for (const MachineFact& fact : Facts(machine, true)) {
    if (fact.name != "huge pages") continue;
    EXPECT_FALSE(fact.in_use);
    EXPECT_NE(fact.why_not, "");
  }
  machine.huge_pages.shmem_on_advice = true;
  for (const MachineFact& fact : Facts(machine, true)) {
    EXPECT_TRUE(fact.in_use || fact.name != "huge pages");
  }
}

}  // namespace
}  // namespace geminid::os
