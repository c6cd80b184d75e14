#include "tools/gpu-verify/isolate.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "base/unique_fd.h"
#include "tools/gpu-verify/process.h"

namespace geminid::gpu_verify {
namespace {

// How long a killed process may take to end and to free its device memory, before we continue.
constexpr double kEndSeconds = 10;
constexpr char kProgressMark = 'p';
constexpr char kOutcomeMark = 'o';

// A record on the pipe: its mark, its length in decimal, a newline, the text.
void WriteRecord(int pipe, char mark, const std::string& text) {
  const std::string record = mark + std::to_string(text.size()) + "\n" + text;
  for (size_t done = 0; done < record.size();) {
    const ssize_t n = write(pipe, record.data() + done, record.size() - done);
    if (n < 0 && errno != EINTR) return;  // the reader is gone, so this process ends too
    if (n > 0) done += static_cast<size_t>(n);
  }
}

// Takes complete records from the front of `buffer`; returns the outcome's text once it is there.
std::optional<std::string> TakeRecords(std::string* buffer, const Progress& progress) {
  while (true) {
    const size_t line_end = buffer->find('\n');
    if (line_end == std::string::npos) return std::nullopt;
    const size_t length = std::strtoul(buffer->c_str() + 1, nullptr, 10);
    if (buffer->size() < line_end + 1 + length) return std::nullopt;
    const char mark = (*buffer)[0];
    std::string text = buffer->substr(line_end + 1, length);
    buffer->erase(0, line_end + 1 + length);
    if (mark == kOutcomeMark) return text;
    progress(text);
  }
}

[[noreturn]] void RunBody(const std::function<Outcome(const Progress&)>& body, int pipe) {
  Outcome outcome;
  try {
    outcome = body([pipe](const std::string& text) { WriteRecord(pipe, kProgressMark, text); });
  } catch (const std::exception& error) {
    outcome = Fail("", error.what());
  }
  WriteRecord(pipe, kOutcomeMark, Serialize(outcome));
  _exit(0);
}

// The probe's process group, as seen by its parent.
class Group {
 public:
  explicit Group(pid_t leader) : leader_(leader) {}

  // Reaps processes that have ended. True while the leader runs.
  bool Reap() {
    int status = 0;
    pid_t pid;
    while ((pid = waitpid(-leader_, &status, WNOHANG)) > 0) {
      if (pid != leader_) continue;
      leader_ended_ = true;
      leader_status_ = status;
    }
    nobody_left_ = pid < 0 && errno == ECHILD;
    return !leader_ended_;
  }

  // Kills and reaps all processes. False if some did not end in time.
  bool End() {
    const double deadline = Now() + kEndSeconds;
    do {
      kill(-leader_, SIGKILL);
      Reap();
      if (nobody_left_) return true;
      Pause(0.002);
    } while (Now() < deadline);
    return false;
  }

  std::string HowLeaderEnded() const {
    const int status = leader_status_;
    if (WIFSIGNALED(status)) {
      return std::string("the probe crashed: ") + strsignal(WTERMSIG(status));
    }
    return "the probe ended without an outcome, exit status " + std::to_string(WEXITSTATUS(status));
  }

 private:
  pid_t leader_;
  bool leader_ended_ = false;
  int leader_status_ = 0;
  bool nobody_left_ = false;
};

// Reads until the outcome, the leader's end or the deadline.
Outcome Await(Group* group, int pipe, double limit_seconds, const Progress& progress) {
  constexpr int kLookMilliseconds = 20;  // how often to see whether the leader still runs
  const double deadline = Now() + limit_seconds;
  std::string buffer;
  while (Now() < deadline) {
    const bool runs = group->Reap();
    pollfd entry{pipe, POLLIN, 0};
    const bool readable = poll(&entry, 1, runs ? kLookMilliseconds : 0) == 1;
    if (readable) {
      char chunk[4096];
      const ssize_t n = read(pipe, chunk, sizeof(chunk));
      if (n > 0) buffer.append(chunk, static_cast<size_t>(n));
      if (const auto text = TakeRecords(&buffer, progress)) {
        return Deserialize(*text).value_or(Fail("", "the probe's outcome is not readable"));
      }
      if (n > 0) continue;
      if (runs) Pause(1e-3 * kLookMilliseconds);  // end of file, but no end yet: look again later
    }
    if (!runs) return Fail("", group->HowLeaderEnded());
  }
  return Fail("", "no answer within " + Number(limit_seconds, 1) + " s");
}

}  // namespace

Outcome RunIsolated(const std::function<Outcome(const Progress&)>& body, double limit_seconds,
                    const Progress& progress) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  int ends[2];
  if (pipe(ends) != 0) return Fail("", std::string("pipe: ") + std::strerror(errno));
  base::UniqueFd reader(ends[0]);
  base::UniqueFd writer(ends[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return Fail("", std::string("fork: ") + std::strerror(errno));
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    reader.Reset();
    RunBody(body, writer.get());
  }
  setpgid(pid, pid);  // both sides do it, so that the group exists whoever runs first
  writer.Reset();
  Group group(pid);
  Outcome outcome = Await(&group, reader.get(), limit_seconds, progress);
  if (!group.End()) {
    outcome.reason += (outcome.reason.empty() ? "" : "; ") +
                      std::string("a process of the probe did not end within ") +
                      Number(kEndSeconds, 0) + " s of SIGKILL";
    outcome.verdict = Verdict::kFail;
  }
  return outcome;
}

}  // namespace geminid::gpu_verify
