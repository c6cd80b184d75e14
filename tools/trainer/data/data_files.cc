#include "tools/trainer/data/data_files.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"

namespace geminid::trainer {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::vector<std::string>> FilesBelow(const std::string& directory,
                                                    const DataWords& words,
                                                    const std::string& suffix) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator it(directory, error);
  if (error) return DataPathError(words, directory, error);
  for (const fs::recursive_directory_iterator end; it != end;) {
    const std::string name = it->path().filename().string();
    const bool hidden = name.starts_with('.');
    if (hidden) it.disable_recursion_pending();
    if (!hidden && name.ends_with(suffix) && it->is_regular_file(error)) {
      files.push_back(it->path().string());
    }
    it.increment(error);
    if (error) return DataPathError(words, directory, error);
  }
  if (files.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the directory '", directory, "' holds no ", suffix.empty() ? "" : suffix + " ",
        "files; give ", words.flag, " a file or a directory of ", words.files));
  }
  // As paths and not as texts: what is in "a/" comes before "a.txt".
  std::sort(files.begin(), files.end(),
            [](const std::string& a, const std::string& b) { return fs::path(a) < fs::path(b); });
  return files;
}

}  // namespace

absl::Status DataPathError(const DataWords& words, const std::string& path,
                           const std::error_code& error) {
  return absl::ErrnoToStatus(error.value(),
                             absl::StrCat("cannot read the ", words.what, " '", path, "'"));
}

absl::StatusOr<std::vector<std::string>> FindDataFiles(const std::string& path,
                                                       const DataWords& words,
                                                       const std::string& suffix) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    return absl::NotFoundError(absl::StrCat("the ", words.what, " '", path,
                                            "' does not exist; give ", words.flag,
                                            " a file or a directory of ", words.files));
  }
  if (error) return DataPathError(words, path, error);
  if (fs::is_directory(status)) return FilesBelow(path, words, suffix);
  if (!fs::is_regular_file(status)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ", words.what, " '", path, "' is neither a file nor a directory"));
  }
  return std::vector<std::string>{path};
}

}  // namespace geminid::trainer
