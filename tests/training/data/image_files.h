// Safetensors files of images and labels, as they should be and as they should not.
#ifndef GEMINID_TESTS_TRAINING_DATA_IMAGE_FILES_H_
#define GEMINID_TESTS_TRAINING_DATA_IMAGE_FILES_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/counter_random.h"

namespace geminid::trainer {

struct RawTensor {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  std::string bytes;
};

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

inline RawTensor Floats(std::string name, std::vector<uint64_t> shape,
                        const std::vector<float>& values) {
  return {std::move(name), "F32", std::move(shape), BytesOf(values)};
}
inline RawTensor Labels(const std::vector<int64_t>& labels) {
  return {"labels", "I64", {labels.size()}, BytesOf(labels)};
}

inline std::string TensorFileOf(const std::vector<RawTensor>& tensors) {
  std::vector<std::string> entries;
  std::string data;
  for (const RawTensor& tensor : tensors) {
    const size_t begin = data.size();
    data += tensor.bytes;
    entries.push_back(absl::StrCat("\"", tensor.name, "\": {\"dtype\": \"", tensor.dtype,
                                   "\", \"shape\": [", absl::StrJoin(tensor.shape, ", "),
                                   "], \"data_offsets\": [", begin, ", ", data.size(), "]}"));
  }
  const std::string header = absl::StrCat("{", absl::StrJoin(entries, ", "), "}");
  return BytesOf<uint64_t>({header.size()}) + header + data;
}

// So many images of random bytes, whose labels follow from a pixel.
inline std::string RandomImageFile(uint64_t count, uint64_t channels, uint64_t side,
                                   uint64_t classes, uint64_t seed) {
  std::vector<uint8_t> pixels;
  std::vector<int64_t> labels;
  for (uint64_t image = 0; image < count; ++image) {
    for (uint64_t i = 0; i < channels * side * side; ++i) {
      pixels.push_back(static_cast<uint8_t>(base::RandomBits(seed + image, i)));
    }
    labels.push_back(pixels[pixels.size() - channels * side * side] %
                     static_cast<int64_t>(classes));
  }
  return TensorFileOf(
      {{"images", "U8", {count, channels, side, side}, BytesOf(pixels)}, Labels(labels)});
}

}  // namespace geminid::trainer

#endif  // GEMINID_TESTS_TRAINING_DATA_IMAGE_FILES_H_
