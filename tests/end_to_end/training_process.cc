#include "tests/end_to_end/training_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "base/max_isa.h"
#include "tests/base/dies_with_test.h"

namespace geminid {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kDaemonLink[] = "geminid";

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Other processes give no event for what is waited for here, so it is looked at again and again.
bool WaitUntil(int seconds, const std::function<bool()>& condition) {
  const Clock::time_point end = Clock::now() + std::chrono::seconds(seconds);
  while (!condition()) {
    if (Clock::now() > end) return false;
    poll(nullptr, 0, 5);
  }
  return true;
}

}  // namespace

TrainingProcess::TrainingProcess(const std::vector<std::string>& flags,
                                 std::vector<std::string> environment) {
  std::ofstream text(folder_ / "text");
  for (int line = 0; line < 4000; ++line) text << "line " << line << " of the text\n";
  text.close();

  std::filesystem::create_symlink(GEMINID_DAEMON_BINARY, folder_ / kDaemonLink);
  // What a device has room for depends on the number of threads.
  std::vector<std::string> arguments = {
      GEMINID_TRAIN_BINARY, "--text", folder_ / "text", "--progress", "lines", "--threads", "1"};
  for (const std::string& flag : flags) {
    if (flag == kExportHere) {
      arguments.push_back(ExportFolder());
    } else {
      arguments.push_back(flag == kLogHere ? (folder_ / "log").string() : flag);
    }
  }
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  if (const char* const isa = std::getenv(base::kMaxIsaVariable)) {
    environment.push_back(std::string(base::kMaxIsaVariable) + "=" + isa);
  }
  environment.insert(environment.end(),
                     {"TMPDIR=" + folder_.string(), "XDG_RUNTIME_DIR=" + folder_.string(),
                      "GEMINID_DAEMON=" + (folder_ / kDaemonLink).string(), "PATH=/usr/bin"});
  std::vector<char*> envp;
  for (std::string& variable : environment) envp.push_back(variable.data());
  envp.push_back(nullptr);

  const std::string words = folder_ / "words";
  const pid_t test = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    base::DieWithTest(test);
    dup2(open(words.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), STDERR_FILENO);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
}

TrainingProcess::~TrainingProcess() {
  if (!ended_ && pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

void TrainingProcess::Signal(int number) const {
  kill(pid_, number);
  for (const pid_t rank : Children("geminid-train")) kill(rank, number);
}

std::string TrainingProcess::Words() const { return ReadFile(folder_ / "words"); }

bool TrainingProcess::WaitForWords(const std::string& text) const {
  return WaitWhileItRuns([&] { return Words().find(text) != std::string::npos; });
}

bool TrainingProcess::WaitForSteps(int count) const {
  return WaitWhileItRuns([&] {
    const std::string log = ReadFile(folder_ / "log");
    return std::ranges::count(log, '\n') >= count;
  });
}

bool TrainingProcess::WaitWhileItRuns(const std::function<bool()>& condition) const {
  bool ended = false;
  WaitUntil(60, [&] {
    siginfo_t info = {};
    ended = waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
            info.si_pid == pid_;
    return ended || condition();
  });
  return !ended;
}

std::vector<pid_t> TrainingProcess::Children(const std::string& program) const {
  std::vector<pid_t> found;
  std::error_code ignored;
  // A daemon that was started again is a child of the thread that did so.
  const std::filesystem::path tasks = "/proc/" + std::to_string(pid_) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks, ignored)) {
    std::istringstream children(ReadFile(task.path() / "children"));
    for (pid_t child = 0; children >> child;) {
      const std::filesystem::path file =
          std::filesystem::read_symlink("/proc/" + std::to_string(child) + "/exe", ignored);
      if (file.filename() == program) found.push_back(child);
    }
  }
  return found;
}

std::vector<pid_t> TrainingProcess::Holders() const {
  std::vector<pid_t> found;
  for (const auto& process : std::filesystem::directory_iterator("/proc")) {
    const std::string arguments = ReadFile(process.path() / "cmdline");
    if (arguments.find("geminid-holder") == std::string::npos) continue;
    if (arguments.find(folder_.string()) == std::string::npos) continue;
    found.push_back(std::stoi(process.path().filename()));
  }
  return found;
}

void TrainingProcess::RemoveDaemonProgram() const {
  std::filesystem::remove(folder_ / kDaemonLink);
}

std::string TrainingProcess::ExportedBytes() const {
  std::map<std::string, std::string> files;
  std::error_code ignored;
  for (const auto& file : std::filesystem::recursive_directory_iterator(ExportFolder(), ignored)) {
    if (file.path().extension() == ".safetensors") files[file.path()] = ReadFile(file.path());
  }
  std::string bytes;
  for (const auto& [name, content] : files) bytes += content;
  return bytes;
}

int TrainingProcess::WaitForEnd(int seconds) {
  int status = 0;
  ended_ = WaitUntil(seconds, [&] { return waitpid(pid_, &status, WNOHANG) == pid_; });
  if (!ended_) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::vector<std::string> TrainingProcess::Leftovers() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    const std::string name = entry.path().filename();
    const bool expected = name == "text" || name == "words" || name == "log" || name == "export" ||
                          name == kDaemonLink;
    if (!expected) names.push_back(name);
  }
  return names;
}

// One that has ended stays until somebody waits for it: where the first process of a container does
// not, for ever.
bool IsGone(pid_t pid, int seconds) {
  return WaitUntil(seconds, [pid] {
    const std::string stat = ReadFile("/proc/" + std::to_string(pid) + "/stat");
    const size_t state = stat.rfind(") ");
    return stat.empty() || (state != std::string::npos && stat.compare(state, 3, ") Z") == 0);
  });
}

}  // namespace geminid
