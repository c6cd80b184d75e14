#include "base/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/system_error.h"
#include "base/unique_fd.h"

extern char** environ;

namespace geminid::base {
namespace {

constexpr mode_t kOutputMode = 0600;

// The two argument objects of posix_spawn.
class Settings {
 public:
  explicit Settings(const ChildProgram& program) {
    posix_spawn_file_actions_init(&actions_);
    if (program.folder >= 0) posix_spawn_file_actions_addfchdir_np(&actions_, program.folder);
    if (!program.reads_input) {
      posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    }
    if (!program.output.empty()) {
      posix_spawn_file_actions_addopen(&actions_, STDOUT_FILENO, program.output.c_str(),
                                       O_WRONLY | O_CREAT | O_APPEND, kOutputMode);
    }
    if (program.errors_to_output) {
      posix_spawn_file_actions_adddup2(&actions_, STDOUT_FILENO, STDERR_FILENO);
    }
    posix_spawnattr_init(&attributes_);
    sigset_t signals;
    sigemptyset(&signals);
    posix_spawnattr_setsigmask(&attributes_, &signals);
    sigfillset(&signals);
    posix_spawnattr_setsigdefault(&attributes_, &signals);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~Settings() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  Settings(const Settings&) = delete;
  Settings& operator=(const Settings&) = delete;

  // First copies to numbers above all of the child's: otherwise one passed descriptor could close
  // another, and a passed descriptor with the same number on both sides would stay close-on-exec.
  absl::Status Give(const std::vector<ChildProgram::PassedDescriptor>& descriptors) {
    int free_from = STDERR_FILENO + 1;
    for (const ChildProgram::PassedDescriptor& passed : descriptors)
      free_from = std::max(free_from, passed.theirs + 1);
    for (const ChildProgram::PassedDescriptor& passed : descriptors) {
      UniqueFd& copy = copies_.emplace_back(fcntl(passed.ours, F_DUPFD_CLOEXEC, free_from));
      if (!copy.valid()) return SystemError(errno, "fcntl(F_DUPFD)", "a descriptor for a program");
      posix_spawn_file_actions_adddup2(&actions_, copy.get(), passed.theirs);
    }
    return absl::OkStatus();
  }

  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
  std::vector<UniqueFd> copies_;
};

// posix_spawn writes to none of them.
std::vector<char*> PointersTo(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

absl::StatusOr<pid_t> StartChild(const ChildProgram& program) {
  Settings settings(program);
  if (absl::Status given = settings.Give(program.descriptors); !given.ok()) return given;
  const std::string& path = program.arguments.front();
  std::vector<char*> variables;
  if (program.environment.has_value()) variables = PointersTo(*program.environment);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, path.c_str(), settings.actions(), settings.attributes(),
                                PointersTo(program.arguments).data(),
                                program.environment.has_value() ? variables.data() : environ);
  if (error == EAGAIN) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no process can be started for ", path,
                     "; raise the limit of processes (ulimit -u, TasksMax=)"));
  }
  if (error != 0) return SystemError(error, "posix_spawn", path);
  return pid;
}

}  // namespace geminid::base
