// Images with labels, in safetensors files (huggingface.co/docs/safetensors):
//
//   images   [n, channels, height, width]   U8 or F32
//   labels   [n]                            I64, from 0 on
//   mean     [channels]                     F32; may be absent, as `std`: then both are 0.5
//   std      [channels]                     F32
//
// F32 pixels are what the model reads. Of U8 pixels it reads (pixel / 255 - mean) / std.
#ifndef GEMINID_TRAINING_DATA_IMAGES_H_
#define GEMINID_TRAINING_DATA_IMAGES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/checkpoint/tensor_file.h"
#include "training/data/token_source.h"
#include "training/models/model_config.h"

namespace geminid::trainer {

// What of a directory is read.
inline constexpr char kImageSuffix[] = ".safetensors";

// Labels are in memory, pixels are read when they are asked for. The source's tokens are the
// labels.
class Images final : public TokenSource {
 public:
  // Files, and all files below directories that end with ".safetensors", by path. INVALID_ARGUMENT
  // names the file that cannot be right and says why: tensors that are absent or have another type,
  // images of another shape than `shape`, or a label that is none of `classes`.
  static absl::StatusOr<std::unique_ptr<Images>> Open(const std::vector<std::string>& paths,
                                                      const ImageShape& shape, uint64_t classes);

  uint64_t tokens() const override { return labels_.size(); }
  const char* unit() const override { return "images"; }
  absl::Status Read(uint64_t first, std::span<int32_t> out) const override;
  // As ReadPatches says of the first pixel that is not finite.
  absl::Status Check(const TokenCheck& how) const override;
  const Images* images() const override { return this; }

  // What the model reads of an image: [patches, patch_elements] of the shape, patches row by row,
  // and of each its channels, rows and columns. INVALID_ARGUMENT names a pixel that is not finite.
  absl::Status ReadPatches(uint64_t image, std::span<float> out) const;
  // Of an image, as its file has it.
  uint64_t pixel_bytes(uint64_t image) const { return FileOf(image).image_bytes; }
  absl::Status ReadPixels(uint64_t image, std::span<std::byte> out) const;

 private:
  // What the model reads of each value of a U8 pixel.
  using Values = std::array<float, 256>;
  struct File {
    checkpoint::TensorFile file;
    uint64_t first = 0;  // of all images
    uint64_t begin = 0;  // of the pixels, in bytes
    uint64_t image_bytes = 0;
    std::vector<Values> values = {};  // of U8, by channel; none: F32
  };

  Images(const ImageShape& shape, uint64_t classes) : shape_(shape), classes_(classes) {}
  absl::Status Add(const std::string& path);
  absl::Status AddLabels(const checkpoint::TensorFile& file, const checkpoint::TensorEntry& labels);
  const File& FileOf(uint64_t image) const;
  absl::Status CheckPixels(uint64_t first, uint64_t count) const;

  const ImageShape shape_;
  const uint64_t classes_;
  std::vector<File> files_;
  std::vector<int32_t> labels_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_DATA_IMAGES_H_
