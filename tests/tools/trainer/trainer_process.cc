#include "tests/tools/trainer/trainer_process.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/time/clock.h"
#include "tests/base/dies_with_test.h"
#include "tests/tools/trainer/command.h"

namespace geminid::trainer {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(120);

std::string ReadProc(pid_t pid, const std::string& name) {
  std::stringstream text;
  text << std::ifstream("/proc/" + std::to_string(pid) + "/" + name).rdbuf();
  return text.str();
}

}  // namespace

TrainerProcess::TrainerProcess(const std::vector<std::string>& arguments, int columns,
                               const std::vector<std::string>& environment) {
  std::vector<std::string> words = TrainerCommand(arguments, environment);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  constexpr unsigned short kRows = 24;
  const winsize size = {kRows, static_cast<unsigned short>(columns), 0, 0};
  int terminal = -1;
  const pid_t test = getpid();
  pid_ = forkpty(&terminal, nullptr, nullptr, &size);
  if (pid_ == 0) {
    base::DieWithTest(test);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  terminal_ = base::UniqueFd(terminal);
  fcntl(terminal, F_SETFD, FD_CLOEXEC);
  fcntl(terminal, F_SETFL, O_NONBLOCK);
}

TrainerProcess::~TrainerProcess() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void TrainerProcess::Signal(int signal) const { kill(pid_, signal); }

void TrainerProcess::Type(const std::string& keys) const {
  (void)!write(terminal_.get(), keys.data(), keys.size());
}

// False at the end of the output, or after the deadline.
bool TrainerProcess::Read(absl::Time deadline) {
  pollfd waiting = {terminal_.get(), POLLIN, 0};
  // poll would wait for ever for a negative time.
  const absl::Duration left = std::max(deadline - absl::Now(), absl::ZeroDuration());
  if (poll(&waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(left))) <= 0) return false;
  char buffer[4096];
  const ssize_t count = read(terminal_.get(), buffer, sizeof(buffer));
  if (count > 0) output_.append(buffer, static_cast<size_t>(count));
  return count > 0 || (count < 0 && errno == EAGAIN);
}

bool TrainerProcess::ReadUntil(absl::FunctionRef<bool()> said) {
  const absl::Time deadline = absl::Now() + kPatience;
  while (!said()) {
    if (!Read(deadline)) return false;
  }
  return true;
}

bool TrainerProcess::WaitFor(const std::string& text) {
  return ReadUntil([&] { return output_.find(text) != std::string::npos; });
}

bool TrainerProcess::WaitFor(const std::string& text, const std::string& then) {
  return ReadUntil([&] {
    const size_t at = output_.find(text);
    return at != std::string::npos && output_.find(then, at + text.size()) != std::string::npos;
  });
}

bool TrainerProcess::WaitForStep(int step) {
  const std::string before = "step ";
  return ReadUntil([&] {
    const size_t last = output_.rfind(before);
    return last != std::string::npos && std::atoi(output_.c_str() + last + before.size()) >= step;
  });
}

int TrainerProcess::Wait() {
  const absl::Time deadline = absl::Now() + kPatience;
  while (Read(deadline)) {
  }
  if (absl::Now() >= deadline) return -1;
  int status = 0;
  if (waitpid(pid_, &status, 0) != pid_) return -1;
  pid_ = -1;
  constexpr int kSignalBase = 128;
  return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalBase + WTERMSIG(status);
}

std::vector<pid_t> ChildrenOf(pid_t pid, const std::string& command) {
  std::vector<pid_t> children;
  for (const auto& thread :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    std::ifstream pids(thread.path() / "children");
    for (pid_t child; pids >> child;) {
      if (CommandLineOf(child).starts_with(command)) children.push_back(child);
    }
  }
  return children;
}

std::vector<pid_t> TrainerProcess::Children(const std::string& command) const {
  return ChildrenOf(pid_, command);
}

std::vector<pid_t> OwnChildren(const std::string& command) { return ChildrenOf(getpid(), command); }

absl::Duration TrainerProcess::Used() const {
  std::vector<pid_t> processes = Children("");
  processes.push_back(pid_);
  absl::Duration used;
  for (pid_t process : processes) {
    const std::string line = ReadProc(process, "stat");
    constexpr int kBefore = 11;  // fields after the name and before utime and stime
    std::istringstream fields(line.substr(line.rfind(')') + 1));
    std::string passed;
    for (int i = 0; i < kBefore; ++i) fields >> passed;
    uint64_t user_ticks = 0, system_ticks = 0;
    fields >> user_ticks >> system_ticks;
    used += absl::Seconds(static_cast<double>(user_ticks + system_ticks) /
                          static_cast<double>(sysconf(_SC_CLK_TCK)));
  }
  return used;
}

std::string CommandLineOf(pid_t pid) {
  std::string line = ReadProc(pid, "cmdline");
  std::replace(line.begin(), line.end(), '\0', ' ');
  return line;
}

std::string ShortNameOf(pid_t pid) {
  std::string name = ReadProc(pid, "comm");
  while (name.ends_with('\n')) name.pop_back();
  return name;
}

}  // namespace geminid::trainer
