#include "client/checkpoint/checksums.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "base/unique_fd.h"
#include "client/checkpoint/safetensors.h"
#include "client/checkpoint/tensor_file.h"
#include "proto/shm/crc32c.h"

namespace geminid::checkpoint {
namespace {

using base::RetryOnEintr;
using base::SystemError;

constexpr char kFilesKey[] = "files";
constexpr size_t kReadBytes = size_t{1} << 20;

template <typename T, typename Get>
std::vector<T> Column(const std::vector<Piece>& pieces, const Get& get) {
  std::vector<T> column;
  column.reserve(pieces.size());
  for (const Piece& piece : pieces) column.push_back(get(piece));
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
    return absl::DataLossError(absl::StrCat("'", file.path(), "' is no list of checksums"));
  }
  std::vector<T> column(entry->elements());
  GEMINID_RETURN_IF_ERROR(
      file.Read(file.PlaceOf(*entry, 0), std::as_writable_bytes(std::span(column))));
  return column;
}

// An open file of a checkpoint and its size.
struct Opened {
  base::UniqueFd fd;
  uint64_t bytes = 0;
};

absl::StatusOr<std::vector<Opened>> OpenAll(const std::string& folder,
                                            const std::vector<std::string>& files) {
  std::vector<Opened> opened;
  for (const std::string& name : files) {
    const std::string path = absl::StrCat(folder, "/", name);
    Opened file;
    file.fd = base::UniqueFd(
        RetryOnEintr([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
    struct stat about = {};
    if (!file.fd.valid()) return SystemError(errno, "open", path);
    if (::fstat(file.fd.get(), &about) != 0) return SystemError(errno, "stat", path);
    file.bytes = static_cast<uint64_t>(about.st_size);
    (void)::posix_fadvise(file.fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL);  // advice alone
    opened.push_back(std::move(file));
  }
  return opened;
}

absl::Status Altered(const std::string& folder, const std::string& file, uint64_t begin,
                     uint64_t end, const char* how) {
  return absl::DataLossError(
      absl::StrFormat("'%s/%s': bytes %d to %d %s", folder, file, begin, end, how));
}

// Pieces lie one after another over the whole of each file.
absl::Status CheckCover(const std::string& folder, const std::vector<std::string>& files,
                        const std::vector<Opened>& opened, const std::vector<Piece>& pieces) {
  std::vector<uint64_t> ends(files.size(), 0);
  for (const Piece& piece : pieces) {
    if (piece.offset != ends[piece.file]) {
      return Altered(folder, files[piece.file], std::min(piece.offset, ends[piece.file]),
                     std::max(piece.offset, ends[piece.file]), "have no one checksum");
    }
    ends[piece.file] += piece.bytes;
  }
  for (size_t i = 0; i < files.size(); ++i) {
    if (ends[i] != opened[i].bytes) {
      return absl::DataLossError(absl::StrCat("'", folder, "/", files[i], "' has ", opened[i].bytes,
                                              " bytes; ", ends[i], " were written"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> ChecksumOf(const Opened& file, const std::string& path, Piece piece,
                                    std::vector<std::byte>* buffer) {
  uint32_t crc = 0;
  while (piece.bytes > 0) {
    const ssize_t got = RetryOnEintr([&] {
      return ::pread(file.fd.get(), buffer->data(), std::min<uint64_t>(buffer->size(), piece.bytes),
                     static_cast<off_t>(piece.offset));
    });
    if (got < 0) return SystemError(errno, "read", path);
    if (got == 0) return absl::DataLossError(absl::StrCat("'", path, "' was cut short"));
    crc = shm::Crc32c(buffer->data(), static_cast<size_t>(got), crc);
    piece.offset += static_cast<uint64_t>(got);
    piece.bytes -= static_cast<uint64_t>(got);
  }
  return crc;
}

}  // namespace

void Checksums::Add(uint32_t file, uint64_t offset, std::span<const std::byte> bytes) {
  const uint32_t crc = shm::Crc32c(bytes.data(), bytes.size());
  std::lock_guard lock(mutex_);
  pieces_.push_back({offset, bytes.size(), file, crc});
}

std::vector<Piece> Checksums::Take() {
  std::lock_guard lock(mutex_);
  return std::exchange(pieces_, {});
}

std::string ChecksumsName(int rank, int ranks) {
  return absl::StrFormat("checksums-%05d-of-%05d.safetensors", rank, ranks);
}

absl::Status WriteChecksums(const std::string& path, const std::vector<std::string>& files,
                            const std::vector<Piece>& pieces) {
  const auto column = [&](const char* name, ElementType type) {
    return TensorEntry{.name = name, .type = type, .shape = {pieces.size()}};
  };
  absl::StatusOr<Header> header =
      LayOut({column("offset", ElementType::kUint64), column("bytes", ElementType::kUint64),
              column("file", ElementType::kUint32), column("crc32c", ElementType::kUint32)},
             {{kFilesKey, absl::StrJoin(files, "\n")}});
  if (!header.ok()) return header.status();
  absl::StatusOr<TensorFile> file = TensorFile::Create(path, *header);
  if (!file.ok()) return file.status();
  GEMINID_RETURN_IF_ERROR(WriteColumn(
      *file, "offset", Column<uint64_t>(pieces, [](const Piece& piece) { return piece.offset; })));
  GEMINID_RETURN_IF_ERROR(WriteColumn(
      *file, "bytes", Column<uint64_t>(pieces, [](const Piece& piece) { return piece.bytes; })));
  GEMINID_RETURN_IF_ERROR(WriteColumn(
      *file, "file", Column<uint32_t>(pieces, [](const Piece& piece) { return piece.file; })));
  GEMINID_RETURN_IF_ERROR(WriteColumn(
      *file, "crc32c", Column<uint32_t>(pieces, [](const Piece& piece) { return piece.crc32c; })));
  return file->Sync();
}

absl::StatusOr<ReadPieces> ReadChecksums(const std::string& path) {
  GEMINID_ASSIGN_OR_RETURN(const TensorFile file, TensorFile::OpenToRead(path));
  GEMINID_ASSIGN_OR_RETURN(const auto offsets, ReadColumn<uint64_t>(file, "offset"));
  GEMINID_ASSIGN_OR_RETURN(const auto bytes, ReadColumn<uint64_t>(file, "bytes"));
  GEMINID_ASSIGN_OR_RETURN(const auto files, ReadColumn<uint32_t>(file, "file"));
  GEMINID_ASSIGN_OR_RETURN(const auto checksums, ReadColumn<uint32_t>(file, "crc32c"));
  ReadPieces read;
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

absl::Status Verify(const std::string& folder, const std::vector<std::string>& files,
                    std::vector<Piece> pieces, int rank, int ranks) {
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.file, a.offset) < std::tie(b.file, b.offset);
  });
  GEMINID_ASSIGN_OR_RETURN(const std::vector<Opened> opened, OpenAll(folder, files));
  if (rank == 0) GEMINID_RETURN_IF_ERROR(CheckCover(folder, files, opened, pieces));
  std::vector<std::byte> buffer(kReadBytes);
  const auto parts = static_cast<size_t>(ranks), part = static_cast<size_t>(rank);
  const size_t end = pieces.size() * (part + 1) / parts;
  for (size_t i = pieces.size() * part / parts; i < end; ++i) {
    const Piece& piece = pieces[i];
    const std::string path = absl::StrCat(folder, "/", files[piece.file]);
    GEMINID_ASSIGN_OR_RETURN(const uint32_t crc,
                             ChecksumOf(opened[piece.file], path, piece, &buffer));
    if (crc != piece.crc32c) {
      return Altered(folder, files[piece.file], piece.offset, piece.offset + piece.bytes,
                     "were altered since they were written");
    }
  }
  return absl::OkStatus();
}

}  // namespace geminid::checkpoint
