#include "training/data/data_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

namespace fs = std::filesystem;

using Identity = std::pair<dev_t, ino_t>;

// Walks the paths of one flag.
class Finder {
 public:
  Finder(const DataWords& words, const std::string& suffix) : words_(words), suffix_(suffix) {}

  absl::Status Add(const std::string& path) {
    struct stat about = {};
    if (::stat(path.c_str(), &about) != 0) return PathError(path, errno);
    if (S_ISDIR(about.st_mode)) return AddDirectory(path, about);
    if (S_ISREG(about.st_mode)) return AddFile(path, about);
    return absl::InvalidArgumentError(
        absl::StrCat("the ", words_.what, " '", path, "' is neither a file nor a directory, and a ",
                     "pipe can be read only once, but every rank reads the data; write it to a file "
                     "and give ", words_.flag, " that"));
  }

  DataPaths Take() {
    std::ranges::move(special_, std::back_inserter(found_.left_out));
    return std::move(found_);
  }

 private:
  absl::Status PathError(const std::string& path, int error) const {
    if (error != ENOENT) return DataPathError(words_, path, {error, std::generic_category()});
    return absl::NotFoundError(absl::StrCat("the ", words_.what, " '", path,
                                            "' does not exist; give ", words_.flag,
                                            " a file or a directory of ", words_.files));
  }

  absl::Status LinkError(const std::string& path, int error) const {
    std::error_code ignored;
    return absl::InvalidArgumentError(
        absl::StrCat("the ", words_.what, " has the link '", path, "' to '",
                     fs::read_symlink(path, ignored).string(), "', which ",
                     error == ENOENT ? "does not exist" : std::generic_category().message(error),
                     "; fix or remove the link"));
  }

  // False if it was already read under another name; then left_out gets a message.
  bool IsNew(const std::string& path, const struct stat& about) {
    const auto [place, is_new] = names_.emplace(Identity(about.st_dev, about.st_ino), path);
    if (!is_new) {
      found_.left_out.push_back(
          absl::StrCat("'", path, "' was read already, as '", place->second, "'"));
    }
    return is_new;
  }

  absl::Status AddFile(const std::string& path, const struct stat& about) {
    if (IsNew(path, about)) found_.files.push_back(path);
    return absl::OkStatus();
  }

  absl::Status AddDirectory(const std::string& path, const struct stat& about) {
    const Identity identity(about.st_dev, about.st_ino);
    for (const auto& [above, name] : open_) {
      if (above != identity) continue;
      return absl::InvalidArgumentError(absl::StrCat("the ", words_.what, " has the link '", path,
                                                     "' to the directory '", name,
                                                     "' that holds it; remove the link"));
    }
    if (!IsNew(path, about)) return absl::OkStatus();
    const size_t before = Known();
    open_.emplace_back(identity, path);
    GEMINID_RETURN_IF_ERROR(AddEntries(path));
    open_.pop_back();
    if (!open_.empty() || Known() > before) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "the directory '", path, "' holds no ", suffix_.empty() ? "" : suffix_ + " ",
        "files; give ", words_.flag, " a file or a directory of ", words_.files));
  }

  size_t Known() const { return found_.files.size() + found_.left_out.size(); }

  absl::Status AddEntries(const std::string& directory) {
    std::vector<fs::path> entries;
    std::error_code error;
    for (fs::directory_iterator it(directory, error), end; !error && it != end;
         it.increment(error)) {
      if (!it->path().filename().string().starts_with('.')) entries.push_back(it->path());
    }
    if (error) return DataPathError(words_, directory, error);
    std::sort(entries.begin(), entries.end());
    for (const fs::path& entry : entries) GEMINID_RETURN_IF_ERROR(AddEntry(entry.string()));
    return absl::OkStatus();
  }

  absl::Status AddEntry(const std::string& path) {
    struct stat about = {};
    if (::stat(path.c_str(), &about) != 0) {
      const int error = errno;
      std::error_code ignored;
      return fs::is_symlink(path, ignored) ? LinkError(path, error) : PathError(path, error);
    }
    if (S_ISDIR(about.st_mode)) return AddDirectory(path, about);
    if (!path.ends_with(suffix_)) return absl::OkStatus();
    if (S_ISREG(about.st_mode)) return AddFile(path, about);
    special_.push_back(absl::StrCat("'", path, "' is neither a file nor a directory"));
    return absl::OkStatus();
  }

  const DataWords& words_;
  const std::string& suffix_;
  std::map<Identity, std::string> names_;  // of the files and directories that were read
  std::vector<std::pair<Identity, std::string>> open_;  // the present directory and those above
  DataPaths found_;
  std::vector<std::string> special_;  // left out, but a folder with nothing else is an error
};

}  // namespace

absl::Status DataPathError(const DataWords& words, const std::string& path,
                           const std::error_code& error) {
  return absl::ErrnoToStatus(error.value(),
                             absl::StrCat("cannot read the ", words.what, " '", path, "'"));
}

absl::StatusOr<DataPaths> FindDataFiles(const std::vector<std::string>& paths,
                                        const DataWords& words, const std::string& suffix) {
  Finder finder(words, suffix);
  for (const std::string& path : paths) GEMINID_RETURN_IF_ERROR(finder.Add(path));
  return finder.Take();
}

}  // namespace geminid::trainer
