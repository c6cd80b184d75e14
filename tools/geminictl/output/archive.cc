#include "tools/geminictl/output/archive.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/pages.h"

namespace geminid::ctl {
namespace {

constexpr size_t kBlock = 512;
constexpr int kGzipWindow = 15 + 16;  // zlib.h: 16 more asks for gzip's header
constexpr int kMemoryLevel = 8;       // zlib's own choice

// POSIX.1-1988, "ustar": texts end with a zero, numbers are octal.
struct Header {
  char name[100];
  char mode[8];
  char uid[8];
  char gid[8];
  char size[12];
  char changed[12];
  char checksum[8];
  char type;
  char link[100];
  char magic[6];
  char version[2];
  char rest[247];
};
static_assert(sizeof(Header) == kBlock);

template <size_t N>
void Put(const std::string& text, char (&field)[N]) {
  std::memcpy(field, text.data(), std::min(text.size(), N));
}

std::string HeaderOf(const ArchivedFile& file, int64_t unix_seconds) {
  Header header = {};
  Put(file.name, header.name);
  Put("0000400", header.mode);
  Put("0000000", header.uid);
  Put("0000000", header.gid);
  Put(absl::StrFormat("%011o", file.text.size()), header.size);
  Put(absl::StrFormat("%011o", unix_seconds), header.changed);
  header.type = '0';
  Put(std::string("ustar\0", 6), header.magic);
  Put("00", header.version);
  // The sum of all bytes, with spaces in the checksum field.
  std::memset(header.checksum, ' ', sizeof(header.checksum));
  std::array<unsigned char, kBlock> bytes;
  std::memcpy(bytes.data(), &header, kBlock);
  const unsigned sum = std::accumulate(bytes.begin(), bytes.end(), 0U);
  Put(absl::StrFormat("%06o", sum) + std::string(1, '\0'), header.checksum);
  return std::string(reinterpret_cast<const char*>(&header), kBlock);
}

absl::StatusOr<std::string> Gzip(const std::string& text) {
  z_stream stream = {};
  if (::deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzipWindow, kMemoryLevel,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
    return absl::ResourceExhaustedError("gzip: no memory");
  }
  std::string packed(::deflateBound(&stream, text.size()), '\0');
  // zlib only reads from next_in.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const int result = ::deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  ::deflateEnd(&stream);
  if (result != Z_STREAM_END) return absl::InternalError(absl::StrCat("gzip: code ", result));
  return packed;
}

}  // namespace

absl::StatusOr<std::string> TarGz(const std::vector<ArchivedFile>& files, int64_t unix_seconds) {
  std::string tar;
  for (const ArchivedFile& file : files) {
    if (file.name.empty() || file.name.size() > kMaxArchivedName) {
      return absl::InvalidArgumentError(absl::StrCat("a name in an archive has 1 to ",
                                                     kMaxArchivedName, " bytes; '", file.name,
                                                     "' has ", file.name.size()));
    }
    absl::StrAppend(&tar, HeaderOf(file, unix_seconds), file.text);
    tar.resize(base::RoundUp(tar.size(), kBlock));
  }
  tar.resize(tar.size() + 2 * kBlock);  // two empty blocks end the archive
  return Gzip(tar);
}

}  // namespace geminid::ctl
