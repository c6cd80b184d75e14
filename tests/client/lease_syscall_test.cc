// The fast path makes no system call. A thread takes and returns a million leases under a filter
// that kills the process at the first system call.
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <memory>
#include <string>

#include "geminid/session.h"
#include "tests/daemon_env/daemon_env.h"

namespace geminid {
namespace {

constexpr int kLeases = 1000000;
constexpr int kNoFilter = 3;
constexpr int kNoSession = 4;
constexpr int kNoLease = 5;

// From now on this thread may only end its process.
bool ForbidSystemCalls() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  sock_fprog program = {sizeof filter / sizeof filter[0], filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// The child's work: attaches, then leases without permission for any system call.
int LeaseInSilence(const std::string& socket, bool make_a_call) {
  ConnectOptions options;
  options.socket = socket;
  options.device_memory_bytes = 1 << 20;
  absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(options);
  if (!session.ok()) return kNoSession;
  const auto chunks = (*session)->Allocate({{"chunk", ChunkKind::kGeneric, 4096, true}});
  if (!chunks.ok() || !(*session)->Use(chunks->front().id).ok()) return kNoSession;
  if (!ForbidSystemCalls()) return kNoFilter;
  for (int i = 0; i < kLeases; ++i) {
    if (!(*session)->TryLease(chunks->front().id).has_value()) _exit(kNoLease);
  }
  if (make_a_call) (void)syscall(SYS_getppid);
  _exit(0);
}

// Forks before gRPC exists in this process. A pipe tells the child the socket.
class Child {
 public:
  explicit Child(bool make_a_call) {
    EXPECT_EQ(pipe(ends_), 0);
    pid_ = fork();
    if (pid_ != 0) return;
    char path[128] = {};
    const ssize_t bytes = read(ends_[0], path, sizeof path - 1);
    _exit(bytes <= 0 ? kNoSession : LeaseInSilence(path, make_a_call));
  }
  int Run(const std::string& socket) {
    EXPECT_EQ(write(ends_[1], socket.data(), socket.size()), static_cast<ssize_t>(socket.size()));
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    return status;
  }

 private:
  int ends_[2] = {-1, -1};
  pid_t pid_ = -1;
};

// There is only one test, because the children must be forked before the daemon's threads exist.
TEST(LeaseFastPath, AMillionLeases_MakeNoSystemCall) {
  Child silent(false);
  Child noisy(true);
  testing::DaemonEnv env;
  ASSERT_TRUE(env.Start().ok());
  const int silent_status = silent.Run(env.socket());
  if (WIFEXITED(silent_status) && WEXITSTATUS(silent_status) == kNoFilter) {
    GTEST_SKIP() << "seccomp filters are not permitted here";
  }
  EXPECT_TRUE(WIFEXITED(silent_status) && WEXITSTATUS(silent_status) == 0) << silent_status;
  // A child that makes one call at the end is killed, so the filter works.
  const int noisy_status = noisy.Run(env.socket());
  EXPECT_TRUE(WIFSIGNALED(noisy_status) && WTERMSIG(noisy_status) == SIGSYS) << noisy_status;
}

}  // namespace
}  // namespace geminid
