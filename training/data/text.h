// Text as training data: each byte is a token.
#ifndef GEMINID_TRAINING_DATA_TEXT_H_
#define GEMINID_TRAINING_DATA_TEXT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "training/data/token_source.h"

namespace geminid::trainer {

// Every rank keeps the whole text in memory.
inline constexpr uint64_t kTextBytesMax = uint64_t{4} << 30;

class Text final : public TokenSource {
 public:
  explicit Text(std::vector<uint8_t> bytes) : bytes_(std::move(bytes)) {}

  // The concatenated bytes of the files, and of all files below the directories. Errors as of
  // FindDataFiles. INVALID_ARGUMENT also for data that is empty or too large, before any of it is
  // read; and for a file with a zero byte, which is not text, as soon as that byte is read.
  static absl::StatusOr<std::unique_ptr<Text>> Load(const std::vector<std::string>& paths,
                                                    const OnBytesRead& on_progress = nullptr);
  // The files that Load would read now. Errors as of Load, except those about the bytes.
  static absl::StatusOr<DataListing> List(const std::vector<std::string>& paths);

  uint64_t tokens() const override { return bytes_.size(); }
  const char* unit() const override { return "bytes"; }
  absl::Status Read(uint64_t first, std::span<int32_t> out) const override;

 private:
  const std::vector<uint8_t> bytes_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_DATA_TEXT_H_
