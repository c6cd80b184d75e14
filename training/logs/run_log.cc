#include "training/logs/run_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "training/logs/formats.h"

namespace geminid::trainer {
namespace {

constexpr mode_t kReadableByAll = 0644;

// Whether a file ends within a line, as one does whose disk was full or whose machine lost power.
absl::StatusOr<bool> EndsWithinALine(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return base::SystemError(errno, "open", path);
  if (file.tellg() == 0) return false;
  file.seekg(-1, std::ios::end);
  char last = 0;
  if (!file.get(last)) return base::SystemError(errno, "read", path);
  return last != '\n';
}

// TensorBoard knows event files by this in their names, and reads them in their order.
std::string EventFileName(absl::Time now) {
  std::array<char, 256> host = {};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return absl::StrCat("events.out.tfevents.", absl::ToUnixSeconds(now), ".", host.data(), ".",
                      ::getpid());
}

}  // namespace

absl::StatusOr<RunLog::File> RunLog::OpenFile(const std::string& path, int flags) {
  File file;
  file.path = path;
  // Never waits for a pipe; what is no file is refused.
  file.fd = base::UniqueFd(base::RetryOnEintr([&] {
    return ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | flags,
                  kReadableByAll);
  }));
  struct stat about = {};
  if (file.fd.valid() && ::fstat(file.fd.get(), &about) == 0 && S_ISREG(about.st_mode)) return file;
  const bool is_file = !file.fd.valid() && errno != EISDIR && errno != ENXIO;
  if (is_file) return base::SystemError(errno, "open", path);
  return absl::InvalidArgumentError(
      absl::StrCat("the log '", path, "' is not a file; give the name of one"));
}

absl::Status RunLog::File::Append(const std::string& text) const {
  std::string_view left = text;
  while (!left.empty()) {
    const ssize_t written =
        base::RetryOnEintr([&] { return ::write(fd.get(), left.data(), left.size()); });
    if (written < 0) return base::SystemError(errno, "write", path);
    left.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::StatusOr<RunLog> RunLog::Open(const RunLogOptions& options, absl::Time now) {
  RunLog log;
  if (!options.lines.empty()) {
    GEMINID_ASSIGN_OR_RETURN(log.lines_, OpenFile(options.lines));
    struct stat about = {};
    const bool has_lines = ::fstat(log.lines_.fd.get(), &about) == 0 && about.st_size > 0;
    if (has_lines && !options.appends) {
      return absl::AlreadyExistsError(absl::StrCat(
          "--log ", options.lines, ": the file has ", about.st_size,
          " bytes, and a run that begins anew overwrites nothing; remove it, give another name, or "
          "add --resume to go on in it"));
    }
    if (has_lines) {
      GEMINID_ASSIGN_OR_RETURN(const bool is_partial, EndsWithinALine(options.lines));
      if (is_partial) GEMINID_RETURN_IF_ERROR(log.lines_.Append("\n"));
    }
  }
  if (options.tensorboard.empty()) return log;
  std::error_code error;
  std::filesystem::create_directories(options.tensorboard, error);
  if (error) return base::SystemError(error.value(), "make the folder", options.tensorboard);
  // Its name can be foretold, and a link of that name could lead anywhere.
  const std::string events = absl::StrCat(options.tensorboard, "/", EventFileName(now));
  GEMINID_ASSIGN_OR_RETURN(log.events_, OpenFile(events, O_NOFOLLOW));
  GEMINID_RETURN_IF_ERROR(log.events_.Append(EventFileStart(now)));
  return log;
}

absl::Status RunLog::Add(const StepRecord& record) {
  if (lines_.fd.valid()) GEMINID_RETURN_IF_ERROR(lines_.Append(JsonLine(record)));
  return events_.fd.valid() ? events_.Append(StepEvent(record)) : absl::OkStatus();
}

}  // namespace geminid::trainer
