#include "client/checkpoint/checked_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "proto/shm/crc32c.h"

namespace geminid::checkpoint {
namespace {

using base::RetryOnEintr;
using base::SystemError;

// Small enough to stay in a core's cache while it is read, checked, and passed to the engine.
constexpr size_t kBlockBytes = size_t{512} << 10;
// A rank's shards lie between those of other ranks, so the disk's own readahead does not help.
constexpr uint64_t kAheadBytes = uint64_t{32} << 20;
// The kernel limits each request to its readahead size.
constexpr uint64_t kAskedAtOnce = uint64_t{128} << 10;

bool IsBefore(const CheckedRange& a, const CheckedRange& b) {
  return std::tie(a.file, a.offset) < std::tie(b.file, b.offset);
}

// Finds ranges in order, for pieces that come in order.
class Follower {
 public:
  // The index, below `count`, of the first range that does not end before or at this byte.
  template <typename RangeOf>
  size_t At(uint32_t file, uint64_t byte, size_t count, const RangeOf& range_of) {
    const auto is_before = [&](const FileRange& range) {
      return range.file != file ? range.file < file : range.end <= byte;
    };
    while (next_ < count && is_before(range_of(next_))) ++next_;
    return next_;
  }

 private:
  size_t next_ = 0;
};

uint64_t EndOf(const CheckedRange& piece) { return piece.offset + piece.bytes; }

}  // namespace

// One pass over some of the pieces, in order.
class CheckedFiles::Pass {
 public:
  Pass(const CheckedFiles& files, const Reading& reading, std::vector<const CheckedRange*> pieces)
      : files_(files), reading_(reading), pieces_(std::move(pieces)), buffer_(kBlockBytes) {}

  absl::Status Run() {
    for (const CheckedRange* next : pieces_) {
      const CheckedRange& piece = *next;
      uint32_t crc = 0;
      absl::Status taken;  // returned only if the checksum matches
      for (uint64_t at = piece.offset; at < EndOf(piece);) {
        AskAhead();
        GEMINID_ASSIGN_OR_RETURN(const std::span<const std::byte> block,
                                 ReadBlock(piece.file, at, EndOf(piece) - at));
        crc = shm::Crc32c(block.data(), block.size(), crc);
        if (taken.ok()) taken = HandOver(piece.file, at, block);
        at += block.size();
        read_ += block.size();
      }
      if (crc != piece.crc32c) {
        return files_.Altered(piece, "were altered since they were written", TensorOf(piece));
      }
      GEMINID_RETURN_IF_ERROR(taken);
    }
    return absl::OkStatus();
  }

 private:
  // Gives the disk work while the block before is being processed.
  void AskAhead() {
    while (asked_piece_ < pieces_.size() && asked_ < read_ + kAheadBytes) {
      const CheckedRange& piece = *pieces_[asked_piece_];
      const uint64_t bytes = std::min(kAskedAtOnce, piece.bytes - asked_of_piece_);
      (void)::posix_fadvise(files_.files_[piece.file].fd.get(),
                            static_cast<off_t>(piece.offset + asked_of_piece_),
                            static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);  // only advice
      asked_ += bytes;
      asked_of_piece_ += bytes;
      if (asked_of_piece_ < piece.bytes) continue;
      ++asked_piece_;
      asked_of_piece_ = 0;
    }
  }

  // Reads the whole block, unless the file ends.
  absl::StatusOr<std::span<const std::byte>> ReadBlock(uint32_t file, uint64_t at, uint64_t bytes) {
    const std::span<std::byte> block =
        std::span(buffer_).first(std::min<uint64_t>(bytes, buffer_.size()));
    for (size_t done = 0; done < block.size();) {
      const ssize_t got = RetryOnEintr([&] {
        return ::pread(files_.files_[file].fd.get(), block.data() + done, block.size() - done,
                       static_cast<off_t>(at + done));
      });
      if (got < 0) return SystemError(errno, "read", files_.PathOf(file));
      if (got == 0) {
        return absl::DataLossError(absl::StrCat("'", files_.PathOf(file), "' was truncated"));
      }
      done += static_cast<size_t>(got);
    }
    return block;
  }

  absl::Status HandOver(uint32_t file, uint64_t at, std::span<const std::byte> block) {
    const std::vector<FileRange>& wanted = reading_.wanted;
    const uint64_t block_end = at + block.size();
    size_t i = wanted_.At(file, at, wanted.size(), [&](size_t w) { return wanted[w]; });
    for (; i < wanted.size() && wanted[i].file == file && wanted[i].begin < block_end; ++i) {
      const uint64_t begin = std::max(at, wanted[i].begin);
      const uint64_t end = std::min(block_end, wanted[i].end);
      GEMINID_RETURN_IF_ERROR(
          reading_.take(i, begin - wanted[i].begin, block.subspan(begin - at, end - begin)));
    }
    return absl::OkStatus();
  }

  std::string TensorOf(const CheckedRange& piece) const {
    for (const Tensor& tensor : reading_.tensors) {
      const FileRange& bytes = tensor.bytes;
      if (bytes.file == piece.file && bytes.begin <= piece.offset && EndOf(piece) <= bytes.end) {
        return tensor.name;
      }
    }
    return "";
  }

  const CheckedFiles& files_;
  const Reading& reading_;
  const std::vector<const CheckedRange*> pieces_;
  std::vector<std::byte> buffer_;
  Follower wanted_;
  uint64_t read_ = 0;   // bytes so far
  uint64_t asked_ = 0;  // bytes requested ahead so far
  size_t asked_piece_ = 0;
  uint64_t asked_of_piece_ = 0;
};

CheckedFiles::CheckedFiles(std::string folder, CheckedFileRanges written)
    : folder_(std::move(folder)),
      names_(std::move(written.files)),
      pieces_(std::move(written.pieces)) {
  std::sort(pieces_.begin(), pieces_.end(), IsBefore);
}

absl::StatusOr<CheckedFiles> CheckedFiles::Open(const std::string& folder,
                                                CheckedFileRanges written) {
  CheckedFiles files(folder, std::move(written));
  GEMINID_RETURN_IF_ERROR(files.OpenAll());
  GEMINID_RETURN_IF_ERROR(files.CheckCover());
  return files;
}

absl::Status CheckedFiles::OpenAll() {
  for (uint32_t file = 0; file < names_.size(); ++file) {
    const std::string path = PathOf(file);
    Opened opened;
    opened.fd = base::UniqueFd(
        RetryOnEintr([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
    struct stat about = {};
    if (!opened.fd.valid()) return SystemError(errno, "open", path);
    if (::fstat(opened.fd.get(), &about) != 0) return SystemError(errno, "stat", path);
    opened.bytes = static_cast<uint64_t>(about.st_size);
    files_.push_back(std::move(opened));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> CheckedFiles::Find(const std::string& name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found != names_.end()) return static_cast<uint32_t>(found - names_.begin());
  return absl::DataLossError(absl::StrCat("'", folder_, "/", name,
                                          "' has no checksums; it was not there when the "
                                          "checkpoint was written"));
}

absl::Status CheckedFiles::Altered(const CheckedRange& piece, const char* how,
                                   const std::string& tensor) const {
  return absl::DataLossError(absl::StrFormat(
      "'%s': %s%s%sbytes %d to %d %s", PathOf(piece.file), tensor.empty() ? "" : "tensor '", tensor,
      tensor.empty() ? "" : "', ", piece.offset, EndOf(piece), how));
}

absl::Status CheckedFiles::CheckCover() const {
  std::vector<uint64_t> ends(names_.size(), 0);
  for (const CheckedRange& piece : pieces_) {
    uint64_t& end = ends[piece.file];
    if (piece.offset != end) {
      const uint64_t begin = std::min(piece.offset, end);
      const uint64_t beyond = std::max(piece.offset, end) - begin;
      return Altered({begin, beyond, piece.file}, "do not have exactly one checksum", "");
    }
    end += piece.bytes;
  }
  for (uint32_t file = 0; file < names_.size(); ++file) {
    if (ends[file] == files_[file].bytes) continue;
    return absl::DataLossError(absl::StrCat("'", PathOf(file), "' has ", files_[file].bytes,
                                            " bytes; ", ends[file], " were written"));
  }
  return absl::OkStatus();
}

absl::Status CheckedFiles::CheckBeginnings() const {
  std::vector<const CheckedRange*> beginnings;
  for (const CheckedRange& piece : pieces_) {
    if (piece.offset == 0) beginnings.push_back(&piece);
  }
  return Pass(*this, {}, std::move(beginnings)).Run();
}

absl::Status CheckedFiles::Read(const Reading& reading) const {
  const auto& [rank, ranks, tensors, wanted, take] = reading;
  std::vector<const CheckedRange*> mine, others;
  Follower in_tensors, in_wanted;
  for (const CheckedRange& piece : pieces_) {
    const size_t w =
        in_wanted.At(piece.file, piece.offset, wanted.size(), [&](size_t i) { return wanted[i]; });
    const bool is_wanted =
        w < wanted.size() && wanted[w].file == piece.file && wanted[w].begin < EndOf(piece);
    const size_t t = in_tensors.At(piece.file, piece.offset, tensors.size(),
                                   [&](size_t i) { return tensors[i].bytes; });
    const bool is_shared = t < tensors.size() && tensors[t].bytes.file == piece.file &&
                           tensors[t].bytes.begin <= piece.offset &&
                           EndOf(piece) <= tensors[t].bytes.end;
    if (is_wanted) mine.push_back(&piece);
    // All ranks compare beginnings of files.
    if (!is_shared && piece.offset > 0) others.push_back(&piece);
  }
  const auto parts = static_cast<size_t>(ranks), part = static_cast<size_t>(rank);
  const auto share =
      std::span(others).subspan(others.size() * part / parts,
                                others.size() * (part + 1) / parts - others.size() * part / parts);
  std::vector<const CheckedRange*> pieces;
  std::set_union(mine.begin(), mine.end(), share.begin(), share.end(), std::back_inserter(pieces));
  return Pass(*this, reading, std::move(pieces)).Run();
}

}  // namespace geminid::checkpoint
