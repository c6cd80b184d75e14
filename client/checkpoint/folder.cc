#include "client/checkpoint/folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "base/unique_fd.h"

namespace geminid::checkpoint {
namespace {

namespace fs = std::filesystem;
using base::SystemError;

constexpr char kPrefix[] = "step-";
constexpr char kUnfinished[] = ".unfinished";
constexpr char kRemoved[] = ".removed";
constexpr char kReplaced[] = ".replaced";
constexpr char kKept[] = ".kept";  // not the saver's own, and never removed
// With so many digits the names of usual steps sort like numbers.
constexpr size_t kDigits = 9;

std::string Join(const std::string& folder, const std::string& name) {
  return absl::StrCat(folder, "/", name);
}

bool IsFinished(std::string_view name) {
  if (!name.starts_with(kPrefix)) return false;
  name.remove_prefix(sizeof(kPrefix) - 1);
  return name.size() >= kDigits &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Returns when renames and removals in the folder are on the disk.
absl::Status SyncFolder(const std::string& path) {
  const base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return SystemError(errno, "open", path);
  if (::fsync(fd.get()) != 0) return SystemError(errno, "sync", path);
  return absl::OkStatus();
}

bool IsThere(const std::string& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

// `path`, or with a number after it if that is taken.
std::string UnusedName(const std::string& path) {
  std::string unused = path;
  for (int number = 2; IsThere(unused); ++number) unused = absl::StrCat(path, ".", number);
  return unused;
}

absl::Status Rename(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) return SystemError(errno, "rename", from);
  return absl::OkStatus();
}

absl::Status RemoveAll(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return error ? SystemError(error.value(), "remove", path) : absl::OkStatus();
}

// Renames first: an interrupted removal must not leave a checkpoint with half of its files.
absl::Status RemoveCheckpoint(const std::string& path) {
  const std::string aside = path + kRemoved;
  GEMINID_RETURN_IF_ERROR(RemoveAll(aside));
  GEMINID_RETURN_IF_ERROR(Rename(path, aside));
  return RemoveAll(aside);
}

absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename());
  }
  if (error) return SystemError(error.value(), "read the folder", folder);
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), a) < std::pair(b.size(), b);
  });
  return names;
}

absl::Status IsLink(const std::string& path) {
  return absl::FailedPreconditionError(absl::StrCat(
      "'", path, "' is a link that the saver did not make, and nothing was written to where it ",
      "leads; save in a folder in which only you may rename"));
}

// Only names of checkpoints: other folders and files are the user's.
absl::Status RemoveEndingWith(const std::string& folder, const char* ending) {
  GEMINID_ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(folder));
  for (const std::string& name : names) {
    std::string_view step = name;
    if (!step.ends_with(ending)) continue;
    step.remove_suffix(std::string_view(ending).size());
    if (IsFinished(step)) GEMINID_RETURN_IF_ERROR(RemoveAll(Join(folder, name)));
  }
  return absl::OkStatus();
}

}  // namespace

std::string NameOfStep(uint64_t step) {
  return absl::StrFormat("%s%0*d", kPrefix, static_cast<int>(kDigits), step);
}

std::string UnfinishedNameOfStep(uint64_t step) { return NameOfStep(step) + kUnfinished; }

absl::Status MakeFolder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return absl::OkStatus();
  absl::Status status = SystemError(error.value(), "make the folder", path);
  if (!absl::IsInvalidArgument(status)) return status;
  return absl::InvalidArgumentError(absl::StrCat(
      status.message(), "; give the path of a folder, or a path where a folder can be made"));
}

absl::StatusOr<base::UniqueFd> OpenWithoutLinks(const std::string& path, int flags) {
  constexpr int kReadableByAll = 0644;
  const fs::path whole(path);
  const std::string parent = whole.has_parent_path() ? whole.parent_path().string() : ".";
  const base::UniqueFd folder(base::RetryOnEintr(
      [&] { return ::open(parent.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }));
  if (!folder.valid()) {
    const int error = errno;
    struct stat about = {};
    const bool is_link = ::lstat(parent.c_str(), &about) == 0 && S_ISLNK(about.st_mode);
    return is_link ? IsLink(parent) : SystemError(error, "open", parent);
  }
  base::UniqueFd fd(base::RetryOnEintr([&] {
    return ::openat(folder.get(), whole.filename().c_str(), flags | O_NOFOLLOW | O_CLOEXEC,
                    kReadableByAll);
  }));
  if (!fd.valid() && errno == ELOOP) return IsLink(path);
  if (!fd.valid()) return SystemError(errno, "open", path);
  return fd;
}

absl::Status WriteNewFile(const std::string& path, const std::string& text) {
  GEMINID_ASSIGN_OR_RETURN(const base::UniqueFd fd,
                           OpenWithoutLinks(path, O_WRONLY | O_CREAT | O_EXCL));
  for (std::string_view left = text; !left.empty();) {
    const ssize_t written =
        base::RetryOnEintr([&] { return ::write(fd.get(), left.data(), left.size()); });
    if (written < 0) return SystemError(errno, "write", path);
    left.remove_prefix(static_cast<size_t>(written));
  }
  if (::fsync(fd.get()) != 0) return SystemError(errno, "sync", path);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> FinishedIn(const std::string& folder) {
  GEMINID_ASSIGN_OR_RETURN(std::vector<std::string> names, NamesIn(folder));
  std::erase_if(names, [](const std::string& name) { return !IsFinished(name); });
  return names;
}

absl::Status BeginStep(const std::string& folder, uint64_t step) {
  const std::string path = Join(folder, UnfinishedNameOfStep(step));
  GEMINID_RETURN_IF_ERROR(RemoveAll(path));
  return MakeFolder(path);
}

absl::StatusOr<std::string> BeginFolder(const std::string& path) {
  if (::access(path.c_str(), F_OK) == 0) {
    return absl::AlreadyExistsError(absl::StrCat(
        "'", path, "' exists and is not overwritten; give a path that does not exist"));
  }
  std::string unfinished = path + kUnfinished;
  GEMINID_RETURN_IF_ERROR(RemoveAll(unfinished));
  GEMINID_RETURN_IF_ERROR(MakeFolder(unfinished));
  return unfinished;
}

absl::Status FinishFolder(const std::string& path) {
  const std::string unfinished = path + kUnfinished;
  GEMINID_RETURN_IF_ERROR(SyncFolder(unfinished));
  GEMINID_RETURN_IF_ERROR(Rename(unfinished, path));
  const std::string above = fs::path(path).parent_path();
  return SyncFolder(above.empty() ? "." : above);
}

void AbandonFolder(const std::string& path) { (void)RemoveAll(path + kUnfinished); }

absl::Status FinishStep(const std::string& folder, uint64_t step, OldCheckpoint older) {
  const std::string unfinished = Join(folder, UnfinishedNameOfStep(step));
  const std::string finished = Join(folder, NameOfStep(step));
  GEMINID_RETURN_IF_ERROR(SyncFolder(unfinished));
  if (IsThere(finished) && older == OldCheckpoint::kIsKept) {
    GEMINID_RETURN_IF_ERROR(Rename(finished, UnusedName(finished + kKept)));
  } else if (IsThere(finished)) {
    // Linux can exchange two folders atomically on most file systems.
    const int exchanged =
        ::renameat2(AT_FDCWD, unfinished.c_str(), AT_FDCWD, finished.c_str(), RENAME_EXCHANGE);
    if (exchanged == 0) {
      GEMINID_RETURN_IF_ERROR(SyncFolder(folder));
      return RemoveAll(unfinished);
    }
    GEMINID_RETURN_IF_ERROR(RemoveCheckpoint(finished));
  }
  GEMINID_RETURN_IF_ERROR(Rename(unfinished, finished));
  return SyncFolder(folder);
}

void AbandonStep(const std::string& folder, uint64_t step) {
  (void)RemoveAll(Join(folder, UnfinishedNameOfStep(step)));
}

std::vector<std::string> ToPrune(const std::vector<FinishedCheckpoint>& in_order, uint64_t keep) {
  std::vector<std::string> names;
  if (keep == 0 || in_order.size() <= keep) return names;
  const size_t kept_from = in_order.size() - keep;
  const auto last_healthy =
      std::find_if(in_order.rbegin(), in_order.rend(),
                   [](const FinishedCheckpoint& checkpoint) { return checkpoint.healthy; });
  for (size_t i = 0; i < kept_from; ++i) {
    const bool is_last_healthy = last_healthy != in_order.rend() && &in_order[i] == &*last_healthy;
    if (!is_last_healthy) names.push_back(in_order[i].name);
  }
  return names;
}

absl::Status RemoveCheckpoints(const std::string& folder, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const absl::Status status = RemoveCheckpoint(Join(folder, name));
    if (!absl::IsNotFound(status)) GEMINID_RETURN_IF_ERROR(status);  // another process removed it
  }
  GEMINID_RETURN_IF_ERROR(RemoveEndingWith(folder, kRemoved));
  GEMINID_RETURN_IF_ERROR(RemoveEndingWith(folder, kReplaced));
  return SyncFolder(folder);
}

absl::Status SetAside(const std::string& folder) {
  GEMINID_ASSIGN_OR_RETURN(const std::vector<std::string> finished, FinishedIn(folder));
  for (const std::string& name : finished) {
    const std::string aside = Join(folder, name) + kReplaced;
    GEMINID_RETURN_IF_ERROR(RemoveAll(aside));
    GEMINID_RETURN_IF_ERROR(Rename(Join(folder, name), aside));
  }
  return SyncFolder(folder);
}

absl::Status RemoveUnfinished(const std::string& folder) {
  return RemoveEndingWith(folder, kUnfinished);
}

}  // namespace geminid::checkpoint
