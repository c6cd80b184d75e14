#include "training/data/token_shards.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/bytes.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "training/data/data_files.h"
#include "training/data/in_blocks.h"

namespace geminid::trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "the formats are little-endian");

constexpr DataWords kWords = {
    .flag = "--shards", .what = "token shard", .files = ".bin files of tokens"};
constexpr uint64_t kHeaderBytes = 1024;
constexpr uint64_t kSmallVocabulary = 65536;  // the vocabulary of uint16

struct Format {
  int32_t magic;
  int32_t version;
  uint64_t token_bytes;
};
constexpr std::array kFormats = {Format{20240520, 1, 2}, Format{20240801, 7, 4}};

struct HeaderFields {
  int32_t magic, version, tokens;
};

// Other files that llm.c writes with this suffix, by magic number.
struct OtherFormat {
  int32_t magic;
  const char* what;
};
constexpr std::array kOtherFormats = {
    OtherFormat{20240326, "GPT-2 weights"},     OtherFormat{20240327, "a debugging state"},
    OtherFormat{20240328, "a tokenizer"},       OtherFormat{20240522, "an evaluation set"},
    OtherFormat{20240527, "an optimizer state"}, OtherFormat{20240803, "Llama 3 weights"}};
// The magic numbers of llm.c are dates, and the versions after them are small.
constexpr int32_t kFirstDate = 20240101;
constexpr int32_t kLastDate = 20291231;
constexpr int32_t kVersionMax = 99;

// At least four bytes, because two could be the first token of a file without a header.
struct OtherKind {
  std::string_view magic;
  const char* what;
};
using std::literals::string_view_literals::operator""sv;
constexpr std::array kOtherKinds = {OtherKind{"PK\x03\x04"sv, "a zip archive, as PyTorch saves"},
                                    OtherKind{"\x80\x02\x8a\x0a"sv, "a pickle, as PyTorch saved"},
                                    OtherKind{"\x93NUMPY"sv, "a NumPy array"},
                                    OtherKind{"\x1f\x8b\x08\x00"sv, "gzip"},
                                    OtherKind{"\x1f\x8b\x08\x08"sv, "gzip"},
                                    OtherKind{"\x28\xb5\x2f\xfd"sv, "zstd"},
                                    OtherKind{"GGUF"sv, "a GGUF model"},
                                    OtherKind{"PAR1"sv, "Parquet"},
                                    OtherKind{"ARROW1"sv, "Arrow"}};
constexpr size_t kMagicMax = 8;
constexpr char kIndexMagic[] = "MMIDIDX";  // of the .idx file beside a .bin file of Megatron

absl::Status Bad(const std::string& path, const std::string& problem) {
  return absl::InvalidArgumentError(absl::StrCat("the token shard '", path, "' ", problem));
}

// The llm.c header at the start of a file, if there is one.
std::optional<HeaderFields> HeaderOf(const base::Mapping& mapping) {
  HeaderFields fields;
  if (mapping.bytes() < sizeof(fields)) return std::nullopt;
  std::memcpy(&fields, mapping.data(), sizeof(fields));
  for (const Format& format : kFormats) {
    if (fields.magic == format.magic) return fields;
  }
  return std::nullopt;
}

// The kind of a file without a token header, if it contains something else than tokens.
std::string OtherKindOf(const std::string& path, const base::Mapping& mapping) {
  const std::string_view beginning(reinterpret_cast<const char*>(mapping.data()),
                                   std::min<uint64_t>(mapping.bytes(), kMagicMax));
  for (const OtherKind& kind : kOtherKinds) {
    if (beginning.starts_with(kind.magic)) return kind.what;
  }
  std::ifstream index(std::filesystem::path(path).replace_extension(".idx"), std::ios::binary);
  std::array<char, sizeof(kIndexMagic) - 1> magic = {};
  if (index.read(magic.data(), magic.size()) &&
      std::string_view(magic.data(), magic.size()) == kIndexMagic) {
    return "an indexed data set of Megatron, whose tokens have a type of their own";
  }
  HeaderFields fields;
  if (mapping.bytes() < sizeof(fields)) return "";
  std::memcpy(&fields, mapping.data(), sizeof(fields));
  for (const OtherFormat& format : kOtherFormats) {
    if (fields.magic == format.magic) return absl::StrCat(format.what, " of llm.c");
  }
  const bool is_date = fields.magic >= kFirstDate && fields.magic <= kLastDate &&
                       fields.version >= 0 && fields.version <= kVersionMax;
  return is_date ? absl::StrCat("of llm.c's format ", fields.magic, ", which is not known") : "";
}

// Whether "val" or "validation" is a word of the file's name, as in fineweb_val_000000.bin.
bool IsForValidation(const std::string& path) {
  std::string name = std::filesystem::path(path).stem().string();
  for (char& c : name) c = absl::ascii_isalpha(c) ? absl::ascii_tolower(c) : ' ';
  const std::vector<std::string> words = absl::StrSplit(name, ' ');
  return std::ranges::any_of(words, [](const std::string& word) {
    return word == "val" || word == "valid" || word == "validation";
  });
}

// Removes validation files below directories. Files that were named themselves stay.
void LeaveOutValidation(const std::vector<std::string>& named, DataPaths* found) {
  const auto is_left = [&](const std::string& path) {
    return IsForValidation(path) && std::ranges::find(named, path) == named.end();
  };
  if (std::ranges::all_of(found->files, is_left)) return;
  for (const std::string& path : found->files) {
    if (!is_left(path)) continue;
    found->left_out.push_back(
        absl::StrCat("'", path, "' is left out, since it is for validation by its name; --shards ",
                     path, " includes it"));
  }
  std::erase_if(found->files, is_left);
}

// Whether all of `count` tokens at `data` are below `vocabulary`.
template <typename Token>
bool AreBelow(const std::byte* data, uint64_t count, uint64_t vocabulary) {
  constexpr uint64_t kRun = 4096;  // a constant length lets the compiler vectorise
  const Token* tokens = reinterpret_cast<const Token*>(data);
  Token most = 0;
  for (; count >= kRun; count -= kRun, tokens += kRun) {
    for (uint64_t i = 0; i < kRun; ++i) most = std::max(most, tokens[i]);
  }
  for (uint64_t i = 0; i < count; ++i) most = std::max(most, tokens[i]);
  return most < vocabulary;
}

// Whether every second token is 0 and the others are not, as where tokens have twice the bytes.
template <typename Token>
bool LooksTwiceAsWide(const std::byte* data, uint64_t tokens) {
  constexpr uint64_t kEnough = 32;   // fewer could be so by chance
  constexpr uint64_t kMost = 65536;  // that are looked at
  if (tokens < kEnough) return false;
  bool has_others = false;
  for (uint64_t i = 0; i + 1 < std::min(tokens, kMost); i += 2) {
    std::array<Token, 2> pair;
    std::memcpy(pair.data(), data + i * sizeof(Token), sizeof(pair));
    if (pair[1] != 0) return false;
    has_others = has_others || pair[0] != 0;
  }
  return has_others;
}

// The number of tokens after a header; `token_bytes` gets their size.
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
                                  file_bytes < expected ? ": it was truncated" : ""));
  }
  *token_bytes = format.token_bytes;
  return announced;
}

// Unmaps the pages that a pass over a file has read. They stay in the page cache, and the next
// access maps them again.
void ForgetPages(const std::byte* from, uint64_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(from);
  const uintptr_t first = base::RoundUpToPage(address);
  const uintptr_t end = (address + bytes) / base::kPageBytes * base::kPageBytes;
  if (first >= end) return;
  (void)::madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);  // advice alone
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenShards>> TokenShards::Open(
    const std::vector<std::string>& paths, uint64_t vocabulary) {
  GEMINID_ASSIGN_OR_RETURN(DataPaths found, FindDataFiles(paths, kWords, kShardSuffix));
  LeaveOutValidation(paths, &found);
  std::unique_ptr<TokenShards> shards(new TokenShards(vocabulary));
  shards->listing_.left_out = std::move(found.left_out);
  for (const std::string& file : found.files) GEMINID_RETURN_IF_ERROR(shards->Add(file));
  return shards;
}

absl::Status TokenShards::Add(const std::string& path) {
  Shard shard;
  shard.path = path;
  // O_NONBLOCK: if a pipe has replaced the file, open must not wait.
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
    if (const std::string kind = OtherKindOf(path, shard.mapping); !kind.empty()) {
      return Bad(path, absl::StrCat("is not a file of tokens but ", kind,
                                    "; move it elsewhere, or give --shards the files to learn"));
    }
    shard.token_bytes = vocabulary_ <= kSmallVocabulary ? sizeof(uint16_t) : sizeof(uint32_t);
    if (file_bytes % shard.token_bytes != 0) {
      return Bad(
          path,
          absl::StrCat("has ", file_bytes, " bytes, which is not a multiple of ", shard.token_bytes,
                       ", the bytes of a token: it was truncated, or is not a file of tokens"));
    }
    shard.tokens = file_bytes / shard.token_bytes;
    GEMINID_RETURN_IF_ERROR(CheckTokenBytes(shard));
  }
  if (shard.tokens == 0) return Bad(path, "holds no tokens");
  listing_.files.push_back({path, file_bytes});
  shard.first = tokens_;
  tokens_ += shard.tokens;
  shards_.push_back(std::move(shard));
  return absl::OkStatus();
}

absl::Status TokenShards::CheckTokenBytes(const Shard& shard) {
  const std::byte* const data = shard.mapping.data();
  const bool is_wider = shard.token_bytes == sizeof(uint16_t)
                            ? LooksTwiceAsWide<uint16_t>(data, shard.tokens)
                            : LooksTwiceAsWide<uint32_t>(data, shard.tokens);
  if (!is_wider) return absl::OkStatus();
  return Bad(shard.path,
             absl::StrCat("has tokens of more than ", shard.token_bytes,
                          " bytes: every second number of ", shard.token_bytes,
                          " bytes is 0. A file without a header has uint16 where --vocabulary is "
                          "at most ",
                          kSmallVocabulary,
                          ", and uint32 otherwise; write it so, or with a header of llm.c"));
}

const TokenShards::Shard* TokenShards::ShardAt(uint64_t token) const {
  return &*(std::upper_bound(shards_.begin(), shards_.end(), token,
                             [](uint64_t number, const Shard& s) { return number < s.first; }) -
            1);
}

absl::Status TokenShards::Read(uint64_t first, std::span<int32_t> out) const {
  const Shard* shard = ShardAt(first);
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

// Access to a file that became shorter would end this process by SIGBUS.
absl::Status TokenShards::CheckLongEnough(const Shard& shard) const {
  struct stat file = {};
  const bool same = ::fstat(shard.fd.get(), &file) == 0 &&
                    static_cast<uint64_t>(file.st_size) >= shard.mapping.bytes();
  return same ? absl::OkStatus()
              : Bad(shard.path,
                    "became shorter while it was in use; put the file back as it was, and go on "
                    "with --resume from the run's last checkpoint");
}

absl::Status TokenShards::BadToken(const Shard& shard, uint64_t number, uint32_t token) const {
  return Bad(shard.path, absl::StrCat("has the token ", token, " at byte ",
                                      shard.data_offset_bytes + number * shard.token_bytes,
                                      ", outside of the vocabulary of ", vocabulary_,
                                      "; give --vocabulary what the tokenizer has"));
}

absl::Status TokenShards::ReadShard(const Shard& shard, uint64_t first,
                                    std::span<int32_t> out) const {
  GEMINID_RETURN_IF_ERROR(CheckLongEnough(shard));
  const std::byte* data = shard.mapping.data() + shard.data_offset_bytes + first * shard.token_bytes;
  for (size_t i = 0; i < out.size(); ++i, data += shard.token_bytes) {
    uint32_t token = 0;
    std::memcpy(&token, data, shard.token_bytes);
    if (token >= vocabulary_) return BadToken(shard, first + i, token);
    out[i] = static_cast<int32_t>(token);
  }
  return absl::OkStatus();
}

absl::Status TokenShards::CheckShard(const Shard& shard, uint64_t first, uint64_t count) const {
  GEMINID_RETURN_IF_ERROR(CheckLongEnough(shard));
  const std::byte* data = shard.mapping.data() + shard.data_offset_bytes + first * shard.token_bytes;
  const bool below = shard.token_bytes == sizeof(uint16_t)
                         ? AreBelow<uint16_t>(data, count, vocabulary_)
                         : AreBelow<uint32_t>(data, count, vocabulary_);
  ForgetPages(data, count * shard.token_bytes);
  if (below) return absl::OkStatus();
  std::vector<int32_t> tokens(count);
  return ReadShard(shard, first, tokens);  // its error names the token
}

absl::Status TokenShards::CheckTokens(uint64_t first, uint64_t count) const {
  for (const Shard* shard = ShardAt(first); count > 0; ++shard) {
    const uint64_t inside = first - shard->first;
    const uint64_t here = std::min(count, shard->tokens - inside);
    GEMINID_RETURN_IF_ERROR(CheckShard(*shard, inside, here));
    first += here;
    count -= here;
  }
  return absl::OkStatus();
}

absl::Status TokenShards::Check(const TokenCheck& how) const {
  const uint64_t first = tokens_ / how.parts * how.part;
  const uint64_t end = how.part + 1 == how.parts ? tokens_ : tokens_ / how.parts * (how.part + 1);
  const auto check = [this](uint64_t at, uint64_t count) { return CheckTokens(at, count); };
  return InBlocks({.first = first, .end = end, .threads = how.threads}, check, how.on_progress);
}

}  // namespace geminid::trainer
