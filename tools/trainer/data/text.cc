#include "tools/trainer/data/text.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "tools/trainer/data/data_files.h"

namespace geminid::trainer {
namespace {

constexpr DataWords kWords = {.flag = "--text", .what = "text", .files = "text files"};

absl::Status Append(const std::string& file, std::vector<uint8_t>* text) {
  std::error_code error;
  const uint64_t bytes = std::filesystem::file_size(file, error);
  if (error) return DataPathError(kWords, file, error);
  if (bytes > kTextBytesMax - text->size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the text is larger than ", base::FormatBytes(kTextBytesMax), " with '", file,
                     "'; every rank keeps the text in memory, so train on a part of it"));
  }
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    return DataPathError(kWords, file, {errno != 0 ? errno : EIO, std::generic_category()});
  }
  const size_t first = text->size();
  text->resize(first + bytes);
  stream.read(reinterpret_cast<char*>(text->data() + first), static_cast<std::streamsize>(bytes));
  if (static_cast<uint64_t>(stream.gcount()) != bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("the text '", file, "' changed while it was read; try again"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Text>> Text::Load(const std::string& path) {
  GEMINID_ASSIGN_OR_RETURN(const std::vector<std::string> files, FindDataFiles(path, kWords, ""));
  std::vector<uint8_t> bytes;
  for (const std::string& file : files) GEMINID_RETURN_IF_ERROR(Append(file, &bytes));
  if (bytes.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the text '", path, "' is empty; give --text something to learn"));
  }
  return std::make_unique<Text>(std::move(bytes));
}

absl::Status Text::Read(uint64_t first, std::span<int32_t> out) const {
  std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(first), out.size(), out.begin());
  return absl::OkStatus();
}

}  // namespace geminid::trainer
