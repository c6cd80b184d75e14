#include "training/data/text.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "training/data/data_files.h"

namespace geminid::trainer {
namespace {

constexpr uint64_t kBlockBytes = uint64_t{4} << 20;
constexpr DataWords kWords = {.flag = "--text", .what = "text", .files = "text files"};

// Guesses from its first bytes what kind of file has a zero byte.
std::string KindOf(std::string_view bytes) {
  using std::literals::string_view_literals::operator""sv;
  constexpr std::pair<std::string_view, const char*> kKinds[] = {
      {"\xff\xfe"sv, "UTF-16; save it as UTF-8"},  {"\xfe\xff"sv, "UTF-16; save it as UTF-8"},
      {"\x1f\x8b"sv, "gzip; unpack it"},           {"\x28\xb5\x2f\xfd"sv, "zstd; unpack it"},
      {"\xfd\x37zXZ"sv, "xz; unpack it"},          {"PK\x03\x04"sv, "a zip archive; unpack it"},
      {"PAR1"sv, "Parquet; write its text to files"}, {"%PDF"sv, "PDF; write its text to files"}};
  for (const auto& [magic, kind] : kKinds) {
    if (bytes.starts_with(magic)) return absl::StrCat("It looks like ", kind);
  }
  return "Remove it, or give --text the files to learn";
}

// Checks the bytes from index `from` on; the earlier ones were checked before.
absl::Status CheckIsText(const std::string& file, std::span<const uint8_t> bytes, size_t from) {
  const auto zero =
      std::find(bytes.begin() + static_cast<ptrdiff_t>(from), bytes.end(), uint8_t{0});
  if (zero == bytes.end()) return absl::OkStatus();
  const std::string_view view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return absl::InvalidArgumentError(absl::StrCat("'", file, "' is not text: its byte ",
                                                 zero - bytes.begin(), " is zero. ", KindOf(view)));
}

// Adds the sizes of the files to the listing. Together they may have at most kTextBytesMax.
absl::Status Measure(const std::vector<std::string>& files, DataListing* listing) {
  uint64_t all = 0;
  for (const std::string& file : files) {
    std::error_code error;
    const uint64_t bytes = std::filesystem::file_size(file, error);
    if (error) return DataPathError(kWords, file, error);
    if (bytes > kTextBytesMax - all) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the text is larger than ", base::FormatBytes(kTextBytesMax), " with '", file,
          "'; every rank keeps the text in memory, so train on a part of it"));
    }
    all += bytes;
    listing->files.push_back({file, bytes});
  }
  return absl::OkStatus();
}

// Reads block by block, so that a file that is not text is found early. `text` has enough capacity.
absl::Status Append(const DataFile& file, std::vector<uint8_t>* text,
                    const std::function<void(uint64_t done)>& on_progress) {
  errno = 0;
  std::ifstream stream(file.path, std::ios::binary);
  if (!stream) {
    return DataPathError(kWords, file.path, {errno != 0 ? errno : EIO, std::generic_category()});
  }
  const size_t first = text->size();
  for (uint64_t done = 0; done < file.bytes;) {
    const uint64_t count = std::min(kBlockBytes, file.bytes - done);
    text->resize(first + done + count);
    stream.read(reinterpret_cast<char*>(text->data() + first + done),
                static_cast<std::streamsize>(count));
    if (static_cast<uint64_t>(stream.gcount()) != count) {
      return absl::FailedPreconditionError(
          absl::StrCat("the text '", file.path, "' changed while it was read; try again"));
    }
    GEMINID_RETURN_IF_ERROR(CheckIsText(file.path, std::span(*text).subspan(first), done));
    done += count;
    on_progress(text->size());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DataListing> Text::List(const std::vector<std::string>& paths) {
  GEMINID_ASSIGN_OR_RETURN(DataPaths found, FindDataFiles(paths, kWords, ""));
  DataListing listing = {.files = {}, .left_out = std::move(found.left_out)};
  GEMINID_RETURN_IF_ERROR(Measure(found.files, &listing));
  return listing;
}

absl::StatusOr<std::unique_ptr<Text>> Text::Load(const std::vector<std::string>& paths,
                                                 const OnBytesRead& on_progress) {
  GEMINID_ASSIGN_OR_RETURN(DataListing listing, List(paths));
  std::vector<uint8_t> bytes;
  uint64_t all = 0;
  for (const DataFile& file : listing.files) all += file.bytes;
  bytes.reserve(all);
  for (const DataFile& file : listing.files) {
    GEMINID_RETURN_IF_ERROR(Append(file, &bytes, [&](uint64_t done) {
      if (on_progress) on_progress(done, all);
    }));
  }
  if (bytes.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the text '", absl::StrJoin(paths, "', '"),
                                                   "' is empty; give --text something to learn"));
  }
  auto text = std::make_unique<Text>(std::move(bytes));
  text->listing_ = std::move(listing);
  return text;
}

absl::Status Text::Read(uint64_t first, std::span<int32_t> out) const {
  std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(first), out.size(), out.begin());
  return absl::OkStatus();
}

}  // namespace geminid::trainer
