#include "training/settings/outputs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "base/unique_fd.h"
#include "client/checkpoint/run_record.h"
#include "training/data/images.h"
#include "training/data/token_shards.h"

namespace geminid::trainer {
namespace {

namespace fs = std::filesystem;
using base::SystemError;

enum class Kind {
  kNewFolder,  // that must not be there yet
  kFolder,     // made if need be
  kFile,       // in a folder that is there
};

struct Output {
  const char* flag;
  std::string path;
  Kind kind;
};

std::vector<Output> OutputsOf(const TrainOptions& options, bool exports) {
  std::vector<Output> outputs;
  const auto add = [&](const char* flag, const std::string& path, Kind kind) {
    if (!path.empty()) outputs.push_back({flag, path, kind});
  };
  add("--save", options.save, Kind::kFolder);
  if (exports) add("--export", options.export_to, Kind::kNewFolder);
  add("--tensorboard", options.tensorboard, Kind::kFolder);
  add("--log", options.log, Kind::kFile);
  add("--report", options.report, Kind::kFile);
  return outputs;
}

absl::Status Named(const char* flag, const std::string& path, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(flag, " ", path, ": ", std::string(status.message())));
}

// As the system will find it, from the root: links are followed as far as the path exists.
fs::path Resolved(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);
  fs::path resolved = error ? fs::path() : fs::weakly_canonical(whole, error);
  return error ? fs::path(path) : resolved;
}

bool IsWithin(const fs::path& inner, const fs::path& outer) {
  const auto [end, unused] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  return end == outer.end();
}

// Whether a run that reads the files of the folder `input` whose names end with `suffix` would read
// the output at `path`. Those within a folder of output may be named as images are, never as
// shards.
bool IsReadAsData(const fs::path& path, Kind kind, const fs::path& input, std::string_view suffix) {
  if (!IsWithin(path, input)) return false;
  const bool is_named =
      kind == Kind::kFile ? path.extension().string().ends_with(suffix) : suffix != kShardSuffix;
  if (!is_named) return false;
  return std::ranges::none_of(path.lexically_relative(input),
                              [](const fs::path& name) { return name.string().starts_with('.'); });
}

absl::Status CheckApart(const std::vector<Output>& outputs, const TrainOptions& options) {
  for (const Output& output : outputs) {
    const fs::path path = Resolved(output.path);
    for (const auto& [flag, inputs] :
         {std::pair("--text", &options.text), std::pair("--shards", &options.shards),
          std::pair("--images", &options.images)}) {
      for (const std::string& given : *inputs) {
        const fs::path input = Resolved(given);
        const char* const suffix = inputs == &options.text     ? ""
                                   : inputs == &options.shards ? kShardSuffix
                                                               : kImageSuffix;
        if (path == input) {
          return Named(output.flag, output.path,
                       absl::InvalidArgumentError(absl::StrCat(
                           "it is ", flag, " too, and would be written over; give another path")));
        }
        if (!IsReadAsData(path, output.kind, input, suffix)) continue;
        return Named(
            output.flag, output.path,
            absl::InvalidArgumentError(absl::StrCat(
                "it lies in ", flag, " ", given, ", and the run would read it as data when ",
                "it starts again; give a path elsewhere, or a name that begins with a dot")));
      }
    }
    for (const Output& other : outputs) {
      if (&other == &output) continue;
      const fs::path others = Resolved(other.path);
      if (path != others && !(other.kind == Kind::kNewFolder && IsWithin(path, others))) continue;
      return Named(output.flag, output.path,
                   absl::InvalidArgumentError(absl::StrCat(
                       path == others ? "it is " : "it lies in ", other.flag,
                       path == others ? " too" : ", which must not exist before the run ends",
                       "; give another path")));
    }
  }
  return absl::OkStatus();
}

// The folder itself, or the one nearest above it that is there.
absl::StatusOr<std::string> ExistingFolder(const std::string& path) {
  for (fs::path at = fs::path(path).is_absolute() ? fs::path(path) : fs::path(".") / path;;
       at = at.parent_path()) {
    struct stat about = {};
    if (::stat(at.c_str(), &about) == 0) {
      if (S_ISDIR(about.st_mode)) return at.string();
      return absl::InvalidArgumentError(absl::StrCat(
          "'", at.string(), "' is not a folder; give a path where a folder can be made"));
    }
    if (errno == ELOOP || errno == ENAMETOOLONG) {
      return absl::InvalidArgumentError(absl::StrCat(
          "no folder can be there: ", std::error_code(errno, std::generic_category()).message()));
    }
    if (errno != ENOENT && errno != ENOTDIR) return SystemError(errno, "look at", at.string());
    std::error_code error;
    if (!fs::is_symlink(at, error)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("'", at.string(), "' is a link to '", fs::read_symlink(at, error).string(),
                     "', which does not exist; make that folder, or remove the link"));
  }
}

std::string TrialName(const std::string& folder) {
  return absl::StrCat(folder, "/.geminid-trial-", ::getpid());
}

// A full disk is no obstacle: the run may have something to prune.
absl::Status WriteByte(const std::string& path) {
  const base::UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd.valid()) return SystemError(errno, "make the file", path);
  if (::write(fd.get(), "x", 1) == 1 || errno == ENOSPC || errno == EDQUOT) {
    return absl::OkStatus();
  }
  return SystemError(errno, "write", path);
}

// What checkpoints and exports need: a folder with a file, which gets another name.
absl::Status TryFolderIn(const std::string& folder) {
  const std::string trial = TrialName(folder), renamed = trial + ".renamed";
  const absl::Cleanup remove = [&] {
    std::error_code error;
    fs::remove_all(trial, error);
    fs::remove_all(renamed, error);
  };
  if (::mkdir(trial.c_str(), 0755) != 0) return SystemError(errno, "making a folder there", folder);
  GEMINID_RETURN_IF_ERROR(WriteByte(trial + "/file"));
  if (std::rename(trial.c_str(), renamed.c_str()) != 0) {
    return SystemError(errno, "renaming a folder there", folder);
  }
  std::error_code error;
  fs::remove_all(renamed, error);
  return error ? SystemError(error.value(), "remove a folder from", folder) : absl::OkStatus();
}

// A file that is appended to: it is opened, and removed if it was not there.
absl::Status TryFile(const std::string& path) {
  struct stat about = {};
  const bool is_there = ::stat(path.c_str(), &about) == 0;
  if (is_there && !S_ISREG(about.st_mode)) {
    return absl::InvalidArgumentError("it is not a file; give the name of one");
  }
  const base::UniqueFd fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644));
  if (!fd.valid()) return SystemError(errno, "open", path);
  if (!is_there) ::unlink(path.c_str());
  return absl::OkStatus();
}

absl::Status Try(const Output& output) {
  if (output.kind == Kind::kFile) {
    return std::string_view(output.flag) == "--report" ? CheckWritable(output.path)
                                                       : TryFile(output.path);
  }
  struct stat about = {};
  if (output.kind == Kind::kNewFolder && ::lstat(output.path.c_str(), &about) == 0) {
    return absl::InvalidArgumentError(
        "it exists and is not overwritten; give a path that does not exist");
  }
  GEMINID_ASSIGN_OR_RETURN(const std::string folder, ExistingFolder(output.path));
  return TryFolderIn(folder);
}

}  // namespace

std::string WithoutSlashesAtEnd(const std::string& path) {
  std::string_view left = path;
  for (;;) {
    if (left.size() > 1 && left.ends_with('/')) {
      left.remove_suffix(1);
    } else if (left.size() > 2 && left.ends_with("/.")) {
      left.remove_suffix(2);
    } else {
      return std::string(left);
    }
  }
}

absl::Status CheckWritable(const std::string& path) {
  struct stat file = {};
  if (stat(path.c_str(), &file) == 0 && !S_ISREG(file.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the report '", path, "' is not a file; give --report the name of one"));
  }
  const std::string temporary = absl::StrCat(path, ".tmp.", getpid());
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write the report '", path, "'"));
  }
  close(fd);
  unlink(temporary.c_str());
  return absl::OkStatus();
}

absl::Status CheckOutputs(const TrainOptions& options, bool exports) {
  const std::vector<Output> outputs = OutputsOf(options, exports);
  GEMINID_RETURN_IF_ERROR(CheckApart(outputs, options));
  if (::access(absl::StrCat(options.save, "/", checkpoint::kRecordName).c_str(), F_OK) == 0 &&
      !options.save.empty()) {
    return Named(
        "--save", options.save,
        absl::InvalidArgumentError("it is a checkpoint itself; give the folder that it lies in"));
  }
  for (const Output& output : outputs) {
    GEMINID_RETURN_IF_ERROR(Named(output.flag, output.path, Try(output)));
  }
  return absl::OkStatus();
}

}  // namespace geminid::trainer
