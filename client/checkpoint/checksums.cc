#include "client/checkpoint/checksums.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "client/checkpoint/safetensors.h"
#include "client/checkpoint/tensor_file.h"
#include "proto/shm/crc32c.h"

namespace geminid::checkpoint {
namespace {

constexpr char kFilesKey[] = "files";

template <typename T, typename Get>
std::vector<T> Column(const std::vector<CheckedRange>& pieces, const Get& get) {
  std::vector<T> column;
  column.reserve(pieces.size());
  for (const CheckedRange& piece : pieces) column.push_back(get(piece));
  return column;
}

template <typename T>
absl::Status WriteColumn(const TensorFile& file, const char* name, const std::vector<T>& column) {
  return file.Write(file.PlaceOf(*file.header().Find(name), 0), std::as_bytes(std::span(column)));
}

template <typename T>
absl::StatusOr<std::vector<T>> ReadColumn(const TensorFile& file, const char* name) {
  const TensorEntry* entry = file.header().Find(name);
  if (entry == nullptr || SizeOf(entry->type) != sizeof(T)) {
    return absl::DataLossError(absl::StrCat("'", file.path(), "' is not a list of checksums"));
  }
  std::vector<T> column(entry->elements());
  GEMINID_RETURN_IF_ERROR(
      file.Read(file.PlaceOf(*entry, 0), std::as_writable_bytes(std::span(column))));
  return column;
}

}  // namespace

void Checksums::Add(uint32_t file, uint64_t offset, std::span<const std::byte> bytes) {
  const uint32_t crc = shm::Crc32c(bytes.data(), bytes.size());
  std::lock_guard lock(mutex_);
  pieces_.push_back({offset, bytes.size(), file, crc});
}

std::vector<CheckedRange> Checksums::Take() {
  std::lock_guard lock(mutex_);
  return std::exchange(pieces_, {});
}

std::string ChecksumsName(int rank, int ranks) {
  return absl::StrFormat("checksums-%05d-of-%05d.safetensors", rank, ranks);
}

absl::Status WriteChecksums(const std::string& path, const std::vector<std::string>& files,
                            const std::vector<CheckedRange>& pieces) {
  const auto column = [&](const char* name, ElementType type) {
    return TensorEntry{.name = name, .type = type, .shape = {pieces.size()}};
  };
  GEMINID_ASSIGN_OR_RETURN(
      Header header,
      LayOut({column("offset", ElementType::kUint64), column("bytes", ElementType::kUint64),
              column("file", ElementType::kUint32), column("crc32c", ElementType::kUint32)},
             {{kFilesKey, absl::StrJoin(files, "\n")}}));
  GEMINID_ASSIGN_OR_RETURN(TensorFile file, TensorFile::Create(path, header));
  GEMINID_RETURN_IF_ERROR(WriteColumn(
      file, "offset",
      Column<uint64_t>(pieces, [](const CheckedRange& piece) { return piece.offset; })));
  GEMINID_RETURN_IF_ERROR(
      WriteColumn(file, "bytes",
                  Column<uint64_t>(pieces, [](const CheckedRange& piece) { return piece.bytes; })));
  GEMINID_RETURN_IF_ERROR(
      WriteColumn(file, "file",
                  Column<uint32_t>(pieces, [](const CheckedRange& piece) { return piece.file; })));
  GEMINID_RETURN_IF_ERROR(WriteColumn(
      file, "crc32c",
      Column<uint32_t>(pieces, [](const CheckedRange& piece) { return piece.crc32c; })));
  return file.Sync();
}

absl::StatusOr<CheckedFileRanges> ReadChecksums(const std::string& path) {
  GEMINID_ASSIGN_OR_RETURN(const TensorFile file, TensorFile::OpenToRead(path));
  GEMINID_ASSIGN_OR_RETURN(const auto offsets, ReadColumn<uint64_t>(file, "offset"));
  GEMINID_ASSIGN_OR_RETURN(const auto bytes, ReadColumn<uint64_t>(file, "bytes"));
  GEMINID_ASSIGN_OR_RETURN(const auto files, ReadColumn<uint32_t>(file, "file"));
  GEMINID_ASSIGN_OR_RETURN(const auto checksums, ReadColumn<uint32_t>(file, "crc32c"));
  CheckedFileRanges read;
  const auto named = file.header().metadata.find(kFilesKey);
  if (named != file.header().metadata.end()) read.files = absl::StrSplit(named->second, '\n');
  const size_t count = offsets.size();
  bool sound = bytes.size() == count && files.size() == count && checksums.size() == count;
  for (size_t i = 0; sound && i < count; ++i) {
    sound = files[i] < read.files.size() && bytes[i] <= UINT64_MAX - offsets[i];
    read.pieces.push_back({offsets[i], bytes[i], files[i], checksums[i]});
  }
  if (!sound) return absl::DataLossError(absl::StrCat("'", path, "' was altered"));
  return read;
}

absl::StatusOr<CheckedFileRanges> ReadAllChecksums(const std::string& folder, uint64_t ranks) {
  CheckedFileRanges all;
  for (uint64_t writer = 0; writer < ranks; ++writer) {
    const std::string name = ChecksumsName(static_cast<int>(writer), static_cast<int>(ranks));
    GEMINID_ASSIGN_OR_RETURN(CheckedFileRanges read,
                             ReadChecksums(absl::StrCat(folder, "/", name)));
    // Only the first rank wrote the small files, so it names more files.
    if (read.files.size() > all.files.size()) all.files = std::move(read.files);
    all.pieces.insert(all.pieces.end(), read.pieces.begin(), read.pieces.end());
  }
  return all;
}

}  // namespace geminid::checkpoint
