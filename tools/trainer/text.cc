#include "tools/trainer/text.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

namespace fs = std::filesystem;

absl::Status PathError(const fs::path& path, const std::error_code& error) {
  return absl::ErrnoToStatus(error.value(),
                             absl::StrCat("cannot read the text '", path.string(), "'"));
}

absl::StatusOr<std::vector<fs::path>> FilesBelow(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::recursive_directory_iterator it(directory, error);
  if (error) return PathError(directory, error);
  for (const fs::recursive_directory_iterator end; it != end;) {
    const bool hidden = it->path().filename().string().starts_with('.');
    if (hidden) it.disable_recursion_pending();
    if (!hidden && it->is_regular_file(error)) files.push_back(it->path());
    it.increment(error);
    if (error) return PathError(directory, error);
  }
  if (files.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the directory '", directory.string(),
                                                   "' holds no files; give --text a text file or a "
                                                   "directory of text files"));
  }
  std::sort(files.begin(), files.end());
  return files;
}

absl::Status Append(const fs::path& file, std::vector<uint8_t>* text) {
  std::error_code error;
  const uint64_t bytes = fs::file_size(file, error);
  if (error) return PathError(file, error);
  if (bytes > kTextBytesMax - text->size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the text is larger than ", base::FormatBytes(kTextBytesMax), " with '", file.string(),
        "'; every rank keeps the text in memory, so train on a part of it"));
  }
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return PathError(file, {errno != 0 ? errno : EIO, std::generic_category()});
  const size_t first = text->size();
  text->resize(first + bytes);
  stream.read(reinterpret_cast<char*>(text->data() + first), static_cast<std::streamsize>(bytes));
  if (static_cast<uint64_t>(stream.gcount()) != bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("the text '", file.string(), "' changed while it was read; try again"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<uint8_t>> LoadText(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    return absl::NotFoundError(absl::StrCat("the text '", path,
                                            "' does not exist; give --text a text file or a "
                                            "directory of text files"));
  }
  if (error) return PathError(path, error);
  std::vector<fs::path> files = {path};
  if (fs::is_directory(status)) {
    GEMINID_ASSIGN_OR_RETURN(files, FilesBelow(path));
  } else if (!fs::is_regular_file(status)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the text '", path, "' is neither a file nor a directory"));
  }
  std::vector<uint8_t> text;
  for (const fs::path& file : files) GEMINID_RETURN_IF_ERROR(Append(file, &text));
  if (text.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the text '", path, "' is empty; give --text something to learn"));
  }
  return text;
}

absl::Status CheckLength(uint64_t bytes, uint64_t context) {
  if (bytes > context) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the text has ", bytes, " bytes, but one sequence takes ", context + 1,
                   " (the context and the byte after it); use a longer text or a smaller "
                   "--context"));
}

}  // namespace geminid::trainer
