#include "client/checkpoint/tensor_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "client/checkpoint/folder.h"
#include "kernels/numeric/cast/cast.h"

namespace geminid::checkpoint {
namespace {

using base::RetryOnEintr;
using base::SystemError;
using base::UniqueFd;

// The beginning of a Git LFS pointer, which as a header's length would mean some 2^62 bytes.
// https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
constexpr char kLfsPointerStart[] = "version ";
constexpr size_t kCastElements = 65536;  // converted through a buffer that stays in the cache

absl::Status Reserve(const UniqueFd& fd, const std::string& path, uint64_t bytes) {
  GEMINID_RETURN_IF_ERROR(base::CheckFileLimit(path, bytes));
  const auto size = static_cast<off_t>(bytes);
  int error = ::posix_fallocate(fd.get(), 0, size);
  if (error == EOPNOTSUPP || error == EINVAL) {
    error = ::ftruncate(fd.get(), size) == 0 ? 0 : errno;
  }
  if (error == 0) return absl::OkStatus();
  const absl::Status status = SystemError(error, "write", path);
  return absl::Status(status.code(), absl::StrCat(std::string(status.message()),
                                                  "; the file takes ", base::FormatBytes(bytes)));
}

template <typename Half>
absl::Status ReadHalves(const TensorFile& file, uint64_t place, std::span<float> values) {
  std::vector<Half> halves(std::min(values.size(), kCastElements));
  for (size_t at = 0; at < values.size(); at += kCastElements) {
    const size_t count = std::min(kCastElements, values.size() - at);
    const std::span<Half> piece = std::span(halves).first(count);
    GEMINID_RETURN_IF_ERROR(file.Read(place + at * sizeof(Half), std::as_writable_bytes(piece)));
    (void)kernels::CastToFloat(piece.data(), count,
                               &values[at]);  // separate buffers: cannot fail
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Named(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("'", path, "': ", std::string(status.message())));
}

TensorFile::TensorFile(std::string path, UniqueFd fd, Header header)
    : path_(std::move(path)), fd_(std::move(fd)), header_(std::move(header)) {}

absl::StatusOr<TensorFile> TensorFile::Create(const std::string& path, const Header& header) {
  GEMINID_ASSIGN_OR_RETURN(UniqueFd fd, OpenWithoutLinks(path, O_RDWR | O_CREAT | O_EXCL));
  GEMINID_RETURN_IF_ERROR(Reserve(fd, path, header.data_begin + header.data_bytes));
  TensorFile file(path, std::move(fd), header);
  const std::string encoded = Encode(header);
  GEMINID_RETURN_IF_ERROR(file.Write(0, std::as_bytes(std::span(encoded))));
  return file;
}

absl::StatusOr<TensorFile> TensorFile::OpenToWrite(const std::string& path, const Header& header) {
  GEMINID_ASSIGN_OR_RETURN(UniqueFd fd, OpenWithoutLinks(path, O_RDWR));
  return TensorFile(path, std::move(fd), header);
}

absl::StatusOr<TensorFile> TensorFile::OpenToRead(const std::string& path) {
  // O_NONBLOCK so that opening a pipe does not block; anything but a regular file is refused below.
  UniqueFd fd(
      RetryOnEintr([&] { return ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC); }));
  if (!fd.valid()) return SystemError(errno, "open", path);
  struct stat about = {};
  if (::fstat(fd.get(), &about) != 0) return SystemError(errno, "stat", path);
  if (!S_ISREG(about.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("'", path, "' is not a regular file"));
  }
  const auto file_bytes = static_cast<uint64_t>(about.st_size);
  TensorFile file(path, std::move(fd), {});
  std::string text(std::min<uint64_t>(kLengthBytes, file_bytes), '\0');
  GEMINID_RETURN_IF_ERROR(file.Read(0, std::as_writable_bytes(std::span(text))));
  if (text == kLfsPointerStart) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", path, "' is a Git LFS pointer of ", file_bytes,
                     " bytes and not the weights; fetch them with 'git lfs pull'"));
  }
  absl::StatusOr<uint64_t> length = HeaderLength(text, file_bytes);
  if (!length.ok()) return Named(path, length.status());
  text.resize(*length);
  GEMINID_RETURN_IF_ERROR(file.Read(kLengthBytes, std::as_writable_bytes(std::span(text))));
  absl::StatusOr<Header> header = Decode(text, file_bytes);
  if (!header.ok()) return Named(path, header.status());
  file.header_ = *std::move(header);
  return file;
}

absl::Status TensorFile::Write(uint64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = RetryOnEintr([&] {
      return ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    });
    if (written < 0) return SystemError(errno, "write", path_);
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return absl::OkStatus();
}

absl::Status TensorFile::Read(uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = RetryOnEintr(
        [&] { return ::pread(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
    if (got < 0) return SystemError(errno, "read", path_);
    if (got == 0) {
      return absl::DataLossError(
          absl::StrCat("'", path_, "' ends at byte ", offset,
                       ", before the end that its header describes: it was truncated"));
    }
    bytes = bytes.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return absl::OkStatus();
}

absl::Status TensorFile::ReadFloats(const TensorEntry& tensor, uint64_t first,
                                    std::span<float> values) const {
  const uint64_t place = PlaceOf(tensor, first);
  switch (tensor.type) {
    case ElementType::kFloat32:
      return Read(place, std::as_writable_bytes(values));
    case ElementType::kBFloat16:
      return ReadHalves<kernels::BFloat16>(*this, place, values);
    case ElementType::kFloat16:
      return ReadHalves<kernels::Float16>(*this, place, values);
    default:
      return absl::DataLossError(absl::StrCat("'", path_, "': tensor '", tensor.name,
                                              "' has dtype ", tensor.type_name(),
                                              ", not F32, BF16 or F16"));
  }
}

absl::Status TensorFile::Sync() const {
  if (RetryOnEintr([this] { return ::fsync(fd_.get()); }) != 0) {
    return SystemError(errno, "sync", path_);
  }
  return absl::OkStatus();
}

}  // namespace geminid::checkpoint
