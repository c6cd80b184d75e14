#include "tools/trainer/data/token_shards.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "tools/trainer/data/data_files.h"

namespace geminid::trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "the formats are little-endian");

constexpr DataWords kWords = {
    .flag = "--shards", .what = "token shard", .files = ".bin files of tokens"};
constexpr char kSuffix[] = ".bin";
constexpr uint64_t kHeaderBytes = 1024;
constexpr uint64_t kSmallVocabulary = 65536;  // of uint16

struct Format {
  int32_t magic;
  int32_t version;
  uint64_t token_bytes;
};
constexpr std::array kFormats = {Format{20240520, 1, 2}, Format{20240801, 7, 4}};

struct HeaderFields {
  int32_t magic, version, tokens;
};

absl::Status Bad(const std::string& path, const std::string& problem) {
  return absl::InvalidArgumentError(absl::StrCat("the token shard '", path, "' ", problem));
}

// The header of llm.c at the start of a file, if it has one.
std::optional<HeaderFields> HeaderOf(const base::Mapping& mapping) {
  HeaderFields fields;
  if (mapping.bytes() < sizeof(fields)) return std::nullopt;
  std::memcpy(&fields, mapping.data(), sizeof(fields));
  for (const Format& format : kFormats) {
    if (fields.magic == format.magic) return fields;
  }
  return std::nullopt;
}

// How many tokens of which size follow a header.
absl::StatusOr<uint64_t> CheckHeader(const std::string& path, const HeaderFields& fields,
                                     uint64_t file_bytes, uint64_t* token_bytes) {
  const Format& format = *std::find_if(kFormats.begin(), kFormats.end(), [&](const Format& known) {
    return known.magic == fields.magic;
  });
  if (fields.version != format.version) {
    return Bad(path, absl::StrCat("has version ", fields.version, " of llm.c's format ",
                                  format.magic, "; version ", format.version, " is known"));
  }
  const uint64_t announced = fields.tokens < 0 ? 0 : static_cast<uint64_t>(fields.tokens);
  const uint64_t expected = kHeaderBytes + announced * format.token_bytes;
  if (file_bytes != expected) {
    return Bad(path, absl::StrCat("has ", file_bytes, " bytes, but its header announces ",
                                  fields.tokens, " tokens, which take ", expected,
                                  file_bytes < expected ? ": it was cut short" : ""));
  }
  *token_bytes = format.token_bytes;
  return announced;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenShards>> TokenShards::Open(const std::string& path,
                                                               uint64_t vocabulary) {
  GEMINID_ASSIGN_OR_RETURN(const std::vector<std::string> files,
                           FindDataFiles(path, kWords, kSuffix));
  std::unique_ptr<TokenShards> shards(new TokenShards(vocabulary));
  for (const std::string& file : files) GEMINID_RETURN_IF_ERROR(shards->Add(file));
  return shards;
}

absl::Status TokenShards::Add(const std::string& path) {
  Shard shard;
  shard.path = path;
  // Never waits for a pipe that took the file's place.
  shard.fd = base::UniqueFd(
      base::RetryOnEintr([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
  if (!shard.fd.valid()) return DataPathError(kWords, path, {errno, std::generic_category()});
  struct stat file = {};
  if (::fstat(shard.fd.get(), &file) != 0) return base::SystemError(errno, "stat", path);
  const auto file_bytes = static_cast<uint64_t>(file.st_size);
  if (file_bytes == 0) return Bad(path, "is empty");
  GEMINID_ASSIGN_OR_RETURN(
      shard.mapping,
      base::Mapping::Map(shard.fd, file_bytes, {.access = base::MappingOptions::Access::kRead}));
  if (const std::optional<HeaderFields> header = HeaderOf(shard.mapping)) {
    GEMINID_ASSIGN_OR_RETURN(shard.tokens,
                             CheckHeader(path, *header, file_bytes, &shard.token_bytes));
    shard.data_offset_bytes = kHeaderBytes;
  } else {
    shard.token_bytes = vocabulary_ <= kSmallVocabulary ? sizeof(uint16_t) : sizeof(uint32_t);
    if (file_bytes % shard.token_bytes != 0) {
      return Bad(path, absl::StrCat("has ", file_bytes, " bytes, which is no multiple of ",
                                    shard.token_bytes,
                                    ", the bytes of a token: it was cut short, "
                                    "or is no file of tokens"));
    }
    shard.tokens = file_bytes / shard.token_bytes;
  }
  if (shard.tokens == 0) return Bad(path, "holds no tokens");
  shard.first = tokens_;
  tokens_ += shard.tokens;
  shards_.push_back(std::move(shard));
  return absl::OkStatus();
}

absl::Status TokenShards::Read(uint64_t first, std::span<int32_t> out) const {
  auto shard = std::upper_bound(shards_.begin(), shards_.end(), first,
                                [](uint64_t token, const Shard& s) { return token < s.first; }) -
               1;
  while (!out.empty()) {
    const uint64_t inside = first - shard->first;
    const size_t count = std::min<uint64_t>(out.size(), shard->tokens - inside);
    GEMINID_RETURN_IF_ERROR(ReadShard(*shard, inside, out.first(count)));
    out = out.subspan(count);
    first += count;
    ++shard;
  }
  return absl::OkStatus();
}

absl::Status TokenShards::ReadShard(const Shard& shard, uint64_t first,
                                    std::span<int32_t> out) const {
  // A file that became shorter would end this process by SIGBUS.
  struct stat file = {};
  const bool same = ::fstat(shard.fd.get(), &file) == 0 &&
                    static_cast<uint64_t>(file.st_size) >= shard.mapping.bytes();
  if (!same) return Bad(shard.path, "became shorter while it was in use");
  const uint64_t offset = shard.data_offset_bytes + first * shard.token_bytes;
  const std::byte* data = shard.mapping.data() + offset;
  for (size_t i = 0; i < out.size(); ++i, data += shard.token_bytes) {
    uint32_t token = 0;
    std::memcpy(&token, data, shard.token_bytes);
    if (token >= vocabulary_) {
      return Bad(shard.path,
                 absl::StrCat("has the token ", token, " at byte ", offset + i * shard.token_bytes,
                              ", outside of the vocabulary of ", vocabulary_,
                              "; give --vocabulary what the tokenizer has"));
    }
    out[i] = static_cast<int32_t>(token);
  }
  return absl::OkStatus();
}

}  // namespace geminid::trainer
