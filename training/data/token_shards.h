// Token files in the formats that tokenizers for other trainers write:
//
//   llm.c     1024 bytes of int32: 20240520, 1, number of tokens, zeros; then uint16; or
//             20240801, 7, number of tokens, zeros; then uint32
//   nanoGPT   nothing but the tokens: uint16, or uint32 where the vocabulary is above 65536
//
// All little-endian. Sources: github.com/karpathy/llm.c, dev/data/data_common.py;
// github.com/karpathy/nanoGPT, data/openwebtext/prepare.py.
#ifndef GEMINID_TRAINING_DATA_TOKEN_SHARDS_H_
#define GEMINID_TRAINING_DATA_TOKEN_SHARDS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mapping.h"
#include "base/unique_fd.h"
#include "training/data/token_source.h"

namespace geminid::trainer {

// The files of a directory that are read.
inline constexpr char kShardSuffix[] = ".bin";

// The files are mapped and never read as a whole, so memory holds only the pages in use.
class TokenShards final : public TokenSource {
 public:
  // Opens files, and all files below directories that end with ".bin", by path. In a directory,
  // files for validation ("val" or "validation" is a word of the name) are left out, unless there
  // are no others. All tokens must be below `vocabulary`. INVALID_ARGUMENT names the file and says
  // what is wrong: it is truncated, its size is odd, its header has another version, or it is a
  // file of another kind.
  static absl::StatusOr<std::unique_ptr<TokenShards>> Open(const std::vector<std::string>& paths,
                                                           uint64_t vocabulary);

  uint64_t tokens() const override { return tokens_; }
  const char* unit() const override { return "tokens"; }
  absl::Status Read(uint64_t first, std::span<int32_t> out) const override;
  absl::Status Check(const TokenCheck& how) const override;

 private:
  struct Shard {
    std::string path;
    base::UniqueFd fd;
    base::Mapping mapping;
    uint64_t first = 0;  // its number among all tokens
    uint64_t tokens = 0;
    uint64_t data_offset_bytes = 0;
    uint64_t token_bytes = 0;
  };

  explicit TokenShards(uint64_t vocabulary) : vocabulary_(vocabulary) {}
  absl::Status Add(const std::string& path);
  absl::Status ReadShard(const Shard& shard, uint64_t first, std::span<int32_t> out) const;
  absl::Status CheckTokens(uint64_t first, uint64_t count) const;
  absl::Status CheckShard(const Shard& shard, uint64_t first, uint64_t count) const;
  static absl::Status CheckTokenBytes(const Shard& shard);
  absl::Status CheckLongEnough(const Shard& shard) const;
  absl::Status BadToken(const Shard& shard, uint64_t number, uint32_t token) const;
  const Shard* ShardAt(uint64_t token) const;

  const uint64_t vocabulary_;
  std::vector<Shard> shards_;
  uint64_t tokens_ = 0;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_DATA_TOKEN_SHARDS_H_
