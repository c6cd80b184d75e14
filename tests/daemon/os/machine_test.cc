#include "daemon/os/machine.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace geminid::os {
namespace {

TEST(Machine, BracketedWord_IsTheChosenOne) {
  EXPECT_EQ(BracketedWord("always inherit advise [never]\n"), "never");
  EXPECT_EQ(BracketedWord("[always] madvise never"), "always");
  EXPECT_EQ(BracketedWord("nothing"), "");
}

TEST(Machine, CgroupsCountHugePages_WhereTheyAreMountedSo) {
  const std::string others =
      "proc /proc proc rw,nosuid 0 0\ntmpfs /x tmpfs rw,memory_hugetlb_accounting 0 0\n";
  EXPECT_FALSE(CgroupsCountHugePages(others));
  EXPECT_FALSE(CgroupsCountHugePages(
      others + "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate,memory_recursiveprot 0 0\n"));
  EXPECT_TRUE(CgroupsCountHugePages(
      others + "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate,memory_hugetlb_accounting 0 0\n"));
  EXPECT_FALSE(CgroupsCountHugePages(""));
}

TEST(Machine, Read_AgreesWithSysconf) {
  const Machine machine = ReadMachine();
  const auto expected = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                        static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  EXPECT_EQ(machine.ram_bytes, expected);
  EXPECT_FALSE(machine.nodes.empty());
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
  machine.huge_pages.counted_by_cgroups = true;
  for (const MachineFact& fact : Facts(machine, true)) {
    EXPECT_TRUE(fact.in_use || fact.name != "huge pages");
    if (fact.name != "huge pages") continue;
    EXPECT_NE(fact.value.find("count against cgroups' memory limits"), std::string::npos);
  }
}

}  // namespace
}  // namespace geminid::os
