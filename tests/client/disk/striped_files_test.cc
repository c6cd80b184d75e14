#include "client/disk/striped_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>

#include "tests/base/temporary_folder.h"

namespace geminid::disk {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;
// The exit status of a child that cannot do its part.
constexpr int kCannot = 77;

// From now on the kernel kills this process at this system call. False: it cannot.
bool DieAt(long call) {
  sock_filter filter[] = {
      {.code = BPF_LD | BPF_W | BPF_ABS, .jt = 0, .jf = 0, .k = offsetof(seccomp_data, nr)},
      {.code = BPF_JMP | BPF_JEQ | BPF_K, .jt = 0, .jf = 1, .k = static_cast<uint32_t>(call)},
      {.code = BPF_RET | BPF_K, .jt = 0, .jf = 0, .k = SECCOMP_RET_KILL_PROCESS},
      {.code = BPF_RET | BPF_K, .jt = 0, .jf = 0, .k = SECCOMP_RET_ALLOW}};
  const sock_fprog program = {.len = std::size(filter), .filter = filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

class StripedFilesTest : public ::testing::Test {
 protected:
  StripedFilesTest() {
    std::filesystem::create_directory(folder_ / "a");
    std::filesystem::create_directory(folder_ / "b");
    spec_.folders = {folder_ / "a", folder_ / "b"};
    spec_.name = NameOfFiles("job-rank0");
    spec_.bytes = 5 * kMiB;
    spec_.patience = absl::ZeroDuration();
  }

  std::string PathIn(const std::string& folder) const {
    return folder_ / (folder + "/" + spec_.name);
  }
  static std::string WhyNot(const absl::StatusOr<StripedFiles>& files) {
    EXPECT_FALSE(files.ok());
    return std::string(files.status().message());
  }
  // Runs `body` in a child process, and returns its exit status.
  static int InChild(const std::function<int()>& body) {
    const pid_t child = fork();
    if (child == 0) _exit(body());
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  base::TemporaryFolder folder_;
  StripedFilesSpec spec_;
};

TEST_F(StripedFilesTest, NewFiles_HaveAllOfTheirSpaceAndNobodyElseMayReadThem) {
  const absl::StatusOr<StripedFiles> files = StripedFiles::Create(spec_);
  ASSERT_TRUE(files.ok()) << files.status();
  for (const std::string folder : {"a", "b"}) {
    struct stat found = {};
    ASSERT_EQ(stat(PathIn(folder).c_str(), &found), 0);
    EXPECT_EQ(found.st_size, static_cast<off_t>(4 * kMiB));  // three of five stripes, and a header
    EXPECT_GE(found.st_blocks * 512, found.st_size);
    EXPECT_EQ(found.st_mode & 0777u, 0600u);
  }
  EXPECT_EQ(files->file_bytes(), 8 * kMiB);
  EXPECT_THAT(files->names(), ElementsAre(PathIn("a"), PathIn("b")));
  EXPECT_THAT(files->how(), HasSubstr("2 disks"));
}

TEST_F(StripedFilesTest, FilesWithoutAName_LeaveNothing) {
  spec_.name = "";
  const absl::StatusOr<StripedFiles> files = StripedFiles::Create(spec_);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "a"));
  EXPECT_TRUE(files->names().empty());
  struct stat found = {};
  ASSERT_EQ(fstat(files->fd(0), &found), 0);
  EXPECT_EQ(found.st_size, static_cast<off_t>(4 * kMiB));
  EXPECT_EQ(found.st_nlink, 0u);
}

TEST_F(StripedFilesTest, FilesOfADeadProcess_AreOpenedByTheirIdentity) {
  uint64_t identity = 0;
  {
    const absl::StatusOr<StripedFiles> files = StripedFiles::Create(spec_);
    ASSERT_TRUE(files.ok()) << files.status();
    identity = files->identity();
  }
  const absl::StatusOr<StripedFiles> again = StripedFiles::Open(spec_, identity);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->identity(), identity);
  EXPECT_EQ(fcntl(again->fd(0), F_GETFL) & O_NONBLOCK, 0) << "no read is refused";
}

TEST_F(StripedFilesTest, OtherFilesThanThoseOfTheRun_AreNotOpened) {
  uint64_t identity = 0;
  { identity = StripedFiles::Create(spec_)->identity(); }
  const auto is_lost = [&](const StripedFilesSpec& spec, uint64_t id) {
    return absl::IsDataLoss(StripedFiles::Open(spec, id).status());
  };
  EXPECT_TRUE(is_lost(spec_, identity + 1));
  StripedFilesSpec other = spec_;
  std::swap(other.folders[0], other.folders[1]);
  EXPECT_TRUE(is_lost(other, identity)) << "each file is that of its own disk";
  other = spec_;
  other.bytes += kMiB;
  EXPECT_TRUE(is_lost(other, identity));
  other.bytes = spec_.bytes;
  other.folders.pop_back();
  EXPECT_TRUE(is_lost(other, identity));
}

TEST_F(StripedFilesTest, RemovedOrTruncatedFiles_AreNotOpened) {
  const uint64_t identity = StripedFiles::Create(spec_)->identity();
  ASSERT_EQ(truncate(PathIn("b").c_str(), 3 * kMiB), 0);
  const absl::StatusOr<StripedFiles> shorter = StripedFiles::Open(spec_, identity);
  EXPECT_TRUE(absl::IsDataLoss(shorter.status())) << shorter.status();
  EXPECT_THAT(WhyNot(shorter), AllOf(HasSubstr(PathIn("b")), HasSubstr("was truncated")));
  std::filesystem::remove(PathIn("b"));
  EXPECT_TRUE(absl::IsNotFound(StripedFiles::Open(spec_, identity).status()));
}

TEST_F(StripedFilesTest, FileInUse_IsGivenToNobodyElse) {
  const absl::StatusOr<StripedFiles> files = StripedFiles::Create(spec_);
  ASSERT_TRUE(files.ok());
  const absl::StatusOr<StripedFiles> second = StripedFiles::Create(spec_);
  EXPECT_TRUE(absl::IsUnavailable(second.status())) << second.status();
  EXPECT_THAT(WhyNot(second), HasSubstr("in use by another process"));
  EXPECT_TRUE(absl::IsUnavailable(StripedFiles::Open(spec_, files->identity()).status()));
  EXPECT_TRUE(std::filesystem::exists(PathIn("a")));
}

// For example a data loading process that outlives its killed rank for a while.
TEST_F(StripedFilesTest, ForkedChildThatOutlivesItsParent_DoesNotHoldTheFile) {
  int pipes[2];
  int started[2];
  ASSERT_EQ(pipe2(pipes, O_CLOEXEC) + pipe2(started, O_CLOEXEC), 0);
  pid_t child = 0;
  char byte = 0;
  {
    const absl::StatusOr<StripedFiles> files = StripedFiles::Create(spec_);
    ASSERT_TRUE(files.ok());
    child = fork();
    if (child == 0) {
      close(pipes[1]);
      if (write(started[1], "", 1) != 1) _exit(1);
      _exit(read(pipes[0], &byte, 1) == 0 ? 0 : 1);
    }
    ASSERT_EQ(read(started[0], &byte, 1), 1);
  }
  EXPECT_TRUE(StripedFiles::Create(spec_).ok());
  for (const int fd : {pipes[0], pipes[1], started[0], started[1]}) close(fd);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
}

TEST_F(StripedFilesTest, LeftoverOfADeadRun_IsReplaced) {
  const uint64_t identity = StripedFiles::Create(spec_)->identity();
  const absl::StatusOr<StripedFiles> files = StripedFiles::Create(spec_);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_NE(files->identity(), identity);
}

TEST_F(StripedFilesTest, ProcessThatIsKilledWhileItMakesFiles_LeavesNothingThatIsInTheWay) {
  for (const long call : {SYS_pwrite64, SYS_fdatasync, SYS_fallocate}) {
    SCOPED_TRACE(call);
    const int status = InChild([&] {
      if (!DieAt(call)) return kCannot;
      return StripedFiles::Create(spec_).ok() ? 0 : 1;
    });
    if (status == kCannot) GTEST_SKIP() << "no filter of system calls can be set here";
    EXPECT_EQ(status, -1) << "it was not killed";
    const absl::StatusOr<StripedFiles> files = StripedFiles::Create(spec_);
    EXPECT_TRUE(files.ok()) << files.status();
  }
}

// The own files may be gone, and another session may have made files of the same names since.
TEST_F(StripedFilesTest, FilesThatAreRemovedByTheirIdentity_AreNotThoseOfAnother) {
  const uint64_t before = StripedFiles::Create(spec_)->identity();
  const absl::StatusOr<StripedFiles> files = StripedFiles::Create(spec_);
  ASSERT_TRUE(files.ok()) << files.status();
  RemoveFiles(files->names(), before);
  EXPECT_TRUE(std::filesystem::exists(PathIn("a")));
  RemoveFiles(files->names(), files->identity());
  EXPECT_FALSE(std::filesystem::exists(PathIn("a")));
  EXPECT_FALSE(std::filesystem::exists(PathIn("b")));
  RemoveFiles(files->names(), files->identity());
}

TEST_F(StripedFilesTest, FileOfSomebodyElse_IsNotReplaced) {
  std::ofstream(PathIn("b")) << "precious";
  const absl::StatusOr<StripedFiles> files = StripedFiles::Create(spec_);
  EXPECT_TRUE(absl::IsFailedPrecondition(files.status())) << files.status();
  EXPECT_THAT(WhyNot(files), HasSubstr("geminid did not create it"));
  EXPECT_EQ(std::filesystem::file_size(PathIn("b")), 8u);
  EXPECT_FALSE(std::filesystem::exists(PathIn("a"))) << "what was made before goes";
}

TEST_F(StripedFilesTest, Remove_TakesTheNamesAndOnlyThese) {
  const absl::StatusOr<StripedFiles> files = StripedFiles::Create(spec_);
  ASSERT_TRUE(files.ok());
  std::filesystem::remove(PathIn("b"));
  std::ofstream(PathIn("b")) << "another";
  files->Remove();
  EXPECT_FALSE(std::filesystem::exists(PathIn("a")));
  EXPECT_TRUE(std::filesystem::exists(PathIn("b")));
}

TEST_F(StripedFilesTest, Limit_IsOfAllFilesTogether) {
  spec_.limit_bytes = 8 * kMiB;
  EXPECT_TRUE(StripedFiles::Create(spec_).ok());
  spec_.limit_bytes -= 1;
  const absl::StatusOr<StripedFiles> files = StripedFiles::Create(spec_);
  EXPECT_TRUE(absl::IsResourceExhausted(files.status()));
  EXPECT_THAT(WhyNot(files), HasSubstr("needs 8.0 MiB of disk"));
}

TEST_F(StripedFilesTest, LimitOfTheProcessesFiles_IsRefusedWithoutASignal) {
  for (const uint64_t bytes : {kMiB, uint64_t{0}}) {
    const int status = InChild([&] {
      const rlimit limit = {.rlim_cur = bytes, .rlim_max = bytes};
      if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return kCannot;
      const absl::Status refused = StripedFiles::Create(spec_).status();
      return absl::IsResourceExhausted(refused) &&
                     refused.message().find("ulimit -f") != std::string::npos
                 ? 0
                 : 1;
    });
    EXPECT_EQ(status, 0) << bytes;
  }
}

// The child mounts a file system of 6 MiB.
TEST_F(StripedFilesTest, FullDisk_IsRefusedWithTheNumbersAndTheLeftoversThere) {
  const std::string small = folder_ / "a";
  const int status = InChild([&] {
    if (unshare(CLONE_NEWNS) != 0 || mount("", "/", "", MS_REC | MS_PRIVATE, "") != 0 ||
        mount("none", small.c_str(), "tmpfs", 0, "size=6M") != 0) {
      return kCannot;
    }
    spec_.folders = {small};
    spec_.bytes = kMiB;
    const std::string mine = std::exchange(spec_.name, NameOfFiles("dead"));
    if (!StripedFiles::Create(spec_).ok()) return 2;
    spec_.name = mine;
    spec_.bytes = 5 * kMiB;
    const absl::Status refused = StripedFiles::Create(spec_).status();
    const auto says = [&](const char* words) {
      return refused.message().find(words) != std::string::npos;
    };
    if (!absl::IsResourceExhausted(refused)) return 3;
    if (!says("6.0 MiB does not fit") || !says("make room")) return 4;
    if (!says("geminid-dead.state (2.0 MiB)")) return 5;
    return std::filesystem::exists(small + "/" + mine) ? 6 : 0;
  });
  if (status == kCannot && geteuid() != 0) GTEST_SKIP() << "no file system can be mounted here";
  EXPECT_EQ(status, 0);
}

TEST_F(StripedFilesTest, FoldersThatCannotBe_AreRefusedWithWhatToDo) {
  spec_.folders = {};
  EXPECT_THAT(WhyNot(StripedFiles::Create(spec_)), HasSubstr("name 1 to 64"));
  spec_.folders = {folder_ / "missing"};
  EXPECT_TRUE(absl::IsNotFound(StripedFiles::Create(spec_).status()));
  std::ofstream(folder_ / "file") << "text";
  spec_.folders = {folder_ / "file"};
  EXPECT_THAT(WhyNot(StripedFiles::Create(spec_)), HasSubstr("is not a folder"));
  spec_.folders = {folder_ / "a", folder_ / "b/../a"};
  EXPECT_THAT(WhyNot(StripedFiles::Create(spec_)), HasSubstr("named twice"));
}

TEST_F(StripedFilesTest, RelativeFolder_IsThatOfTheStart) {
  const std::string before = std::filesystem::current_path().string();
  std::filesystem::current_path(folder_.path());
  spec_.folders = {"a", "b"};
  const absl::StatusOr<StripedFiles> files = StripedFiles::Create(spec_);
  std::filesystem::current_path(before);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->path(0), std::filesystem::canonical(PathIn("a")).string());
  files->Remove();
  EXPECT_FALSE(std::filesystem::exists(PathIn("a")));
}

TEST_F(StripedFilesTest, FileSystemInMemory_IsNamed) {
  if (!std::filesystem::exists("/dev/shm")) GTEST_SKIP() << "there is no /dev/shm";
  spec_.folders = {"/dev/shm"};
  spec_.name = "";
  const absl::StatusOr<StripedFiles> files = StripedFiles::Create(spec_);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(files->how(), HasSubstr("/dev/shm is on tmpfs, which is memory"));
}

}  // namespace
}  // namespace geminid::disk
