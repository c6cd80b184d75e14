#include "daemon/os/process_place.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "daemon/os/event.h"

namespace geminid::os {
namespace {

bool IsRoots(const std::string&) { return true; }

TEST(IsInContainer, ProcessWithNumbersInSeveralNamespaces_IsInOne) {
  EXPECT_FALSE(IsInContainer("Name:\tsh\nNSpid:\t4711\nVmRSS:\t1 kB\n"));
  EXPECT_TRUE(IsInContainer("Name:\tsh\nNSpid:\t4711\t1\n"));
  EXPECT_FALSE(IsInContainer("Name:\tNSpid: 1 2\n"));
  EXPECT_FALSE(IsInContainer(""));
}

TEST(CgroupOf, Version2_IsPreferredUnlessItIsNotUsed) {
  EXPECT_EQ(CgroupOf("0::/system.slice/a.service\n").path, "/system.slice/a.service");
  const CgroupPath old = CgroupOf("4:memory:/docker/1\n1:name=systemd:/x\n0::/\n");
  EXPECT_EQ(old.path, "/docker/1");
  EXPECT_EQ(old.mount, "/memory");
  EXPECT_EQ(CgroupOf("4:memory:/docker/1\n0::/new\n").path, "/new");
  EXPECT_EQ(CgroupOf("0::/with:colons\n").path, "/with:colons");
  EXPECT_EQ(CgroupOf("garbage").path, "/");
}

TEST(WithoutOwnCgroups, WhatAUserCanMake_IsCutOff) {
  EXPECT_EQ(WithoutOwnCgroups("/kubepods.slice/pod1/c1", IsRoots), "/kubepods.slice/pod1/c1");
  EXPECT_EQ(WithoutOwnCgroups("/user.slice/user-7.slice/session-3.scope", IsRoots),
            "/user.slice/user-7.slice");
  EXPECT_EQ(WithoutOwnCgroups("/user-x.slice/a", IsRoots), "/user-x.slice/a");
  const auto owned_by_root = [](const std::string& path) { return path != "/a/b"; };
  EXPECT_EQ(WithoutOwnCgroups("/a/b/c/d", owned_by_root), "/a/b");
  EXPECT_EQ(WithoutOwnCgroups("/", IsRoots), "/");
}

TEST(WithoutOwnCgroups, NameOfAnyLengthAndBytes_FitsIntoAMessage) {
  EXPECT_EQ(WithoutOwnCgroups("/a\nb,\"c", IsRoots), "/a?b??c");
  const std::string one = WithoutOwnCgroups("/" + std::string(5000, 'x'), IsRoots);
  EXPECT_EQ(one.size(), 256u);
  EXPECT_NE(one, WithoutOwnCgroups("/" + std::string(5001, 'x'), IsRoots));
}

class Place : public ::testing::Test {
 protected:
  // A child that waits to be killed, once `prepare` has run in the parent.
  void SetUp() override {
    pid_ = ::fork();
    ASSERT_GE(pid_, 0);
    if (pid_ == 0) {
      while (true) ::pause();
    }
    absl::StatusOr<base::UniqueFd> pidfd = OpenPidfd(pid_);
    ASSERT_TRUE(pidfd.ok());
    pidfd_ = *std::move(pidfd);
  }
  void TearDown() override { End(); }
  void End() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

  pid_t pid_ = 0;
  base::UniqueFd pidfd_;
};

TEST_F(Place, LivingProcess_HasOne) {
  const std::optional<ProcessPlace> place = PlaceOf(pid_, pidfd_);
  ASSERT_TRUE(place.has_value());
  EXPECT_FALSE(place->in_container);
  EXPECT_EQ(place->cgroup.front(), '/');
}

TEST_F(Place, EndedProcess_HasNoneThoughItsNumberMayBeUsedAgain) {
  const pid_t pid = pid_;
  End();
  EXPECT_EQ(PlaceOf(pid, pidfd_), std::nullopt);
  // The case in which another process has its number.
  EXPECT_EQ(PlaceOf(::getpid(), pidfd_), std::nullopt);
  EXPECT_EQ(PlaceOf(::getpid(), base::UniqueFd()), std::nullopt);
}

TEST_F(Place, ParentOfALivingProcess_IsTheProcessThatStartedIt) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    const pid_t child = ::fork();
    if (child == 0) {
      while (true) ::pause();
    }
    (void)!::write(ends[1], &child, sizeof(child));
    while (true) ::pause();
  }
  pid_t child = 0;
  ASSERT_EQ(::read(ends[0], &child, sizeof(child)), ssize_t{sizeof(child)});
  ::close(ends[0]);
  ::close(ends[1]);
  const absl::StatusOr<base::UniqueFd> pidfd = OpenPidfd(child);
  ASSERT_TRUE(pidfd.ok()) << pidfd.status();
  const base::UniqueFd found = ParentOf(child, *pidfd);
  EXPECT_TRUE(found.valid());
  EXPECT_FALSE(HasEnded(found));
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  EXPECT_TRUE(HasEnded(found));
  ::kill(child, SIGKILL);
}

TEST_F(Place, ParentOfAnEndedProcess_IsNotLookedForByItsNumber) {
  End();
  EXPECT_FALSE(ParentOf(::getpid(), pidfd_).valid());  // another process has its number
}

TEST_F(Place, CgroupOfTheKernel_IsItsPath) {
  const std::string name = absl::StrCat("geminid-test-", ::getpid());
  for (const std::string mount : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
    const std::string folder = absl::StrCat(mount, "/", name);
    if (::mkdir(folder.c_str(), 0755) != 0) continue;
    std::ofstream(folder + "/cgroup.procs") << pid_;
    const std::optional<ProcessPlace> place = PlaceOf(pid_, pidfd_);
    End();
    // A cgroup can be removed only after its last process has ended completely.
    while (::rmdir(folder.c_str()) != 0 && errno == EBUSY) std::this_thread::yield();
    ASSERT_TRUE(place.has_value());
    EXPECT_EQ(place->cgroup, "/" + name);
    return;
  }
  GTEST_SKIP() << "cgroups cannot be made here";
}

}  // namespace
}  // namespace geminid::os
