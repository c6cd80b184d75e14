#include "tests/collectives/forked_ranks.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace geminid::collectives {
namespace {

constexpr char kMark = '!';
constexpr size_t kSaidBytes = 1 + sizeof(ForkedRanks::Time);

// One short write, which a pipe takes as a whole.
void Say(int pipe) {
  const ForkedRanks::Time now = std::chrono::steady_clock::now();
  char bytes[kSaidBytes] = {kMark};
  std::memcpy(bytes + 1, &now, sizeof(now));
  (void)!::write(pipe, bytes, sizeof(bytes));
}

}  // namespace

ForkedRanks::ForkedRanks(int world_size, const Body& body) {
  for (int rank = 0; rank < world_size; ++rank) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      children_.clear();  // the pipes of earlier children
      ::close(ends[0]);
      const int out = ends[1];
      const std::string result = body(rank, [out] { Say(out); });
      (void)!::write(out, result.data(), result.size());
      ::_exit(0);
    }
    ::close(ends[1]);
    children_.push_back({.pid = pid, .pipe = base::UniqueFd(ends[0])});
  }
}

ForkedRanks::~ForkedRanks() {
  for (size_t rank = 0; rank < children_.size(); ++rank) {
    Kill(static_cast<int>(rank));
    if (children_[rank].pid > 0) ::waitpid(children_[rank].pid, nullptr, 0);
  }
}

ForkedRanks::Time ForkedRanks::AwaitReady(int rank) {
  char bytes[kSaidBytes] = {};
  const int pipe = children_[static_cast<size_t>(rank)].pipe.get();
  EXPECT_EQ(::read(pipe, bytes, sizeof(bytes)), static_cast<ssize_t>(sizeof(bytes)));
  EXPECT_EQ(bytes[0], kMark);
  Time said;
  std::memcpy(&said, bytes + 1, sizeof(said));
  return said;
}

void ForkedRanks::Kill(int rank) { Signal(rank, SIGKILL); }
void ForkedRanks::Stop(int rank) { Signal(rank, SIGSTOP); }
void ForkedRanks::Continue(int rank) { Signal(rank, SIGCONT); }

void ForkedRanks::Signal(int rank, int signal) {
  const pid_t pid = children_[static_cast<size_t>(rank)].pid;
  if (pid > 0) ::kill(pid, signal);
}

bool ForkedRanks::SaysSomethingWithin(int rank, std::chrono::milliseconds time) {
  pollfd entry{
      .fd = children_[static_cast<size_t>(rank)].pipe.get(), .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, static_cast<int>(time.count())) != 0;
}

std::string ForkedRanks::Result(int rank) {
  Child& child = children_[static_cast<size_t>(rank)];
  std::string result;
  char bytes[4096];
  for (;;) {
    const ssize_t n = ::read(child.pipe.get(), bytes, sizeof(bytes));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    result.append(bytes, static_cast<size_t>(n));
  }
  int status = 0;
  ::waitpid(child.pid, &status, 0);
  child.pid = -1;
  if (WIFSIGNALED(status)) result += absl::StrCat("ended by signal ", WTERMSIG(status));
  return result;
}

}  // namespace geminid::collectives
