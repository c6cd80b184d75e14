// The head of a checkpoint's file, which may come from anywhere.
#include <algorithm>
#include <string>

#include "client/checkpoint/safetensors.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace geminid;              // NOLINT: one function
  using namespace geminid::checkpoint;  // NOLINT
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (size < kLengthBytes) return 0;
  const absl::StatusOr<uint64_t> length = HeaderLength(text.substr(0, kLengthBytes), size);
  if (length.ok()) fuzz::Require(*length <= size - kLengthBytes, "a header lies within its file");
  // What follows is read as a header of a file of every size that it might be of.
  const std::string json = text.substr(kLengthBytes, length.value_or(size));
  const uint64_t begin = kLengthBytes + json.size();
  uint64_t said = 0;  // the last number in it is likely its end
  for (const char c : json) said = c >= '0' && c <= '9' ? said * 10 + (c - '0') : said;
  for (const uint64_t file_bytes : {uint64_t{size}, begin, begin + said % (uint64_t{1} << 40)}) {
    const absl::StatusOr<Header> header = Decode(json, file_bytes);
    if (!header.ok()) continue;
    uint64_t end = 0;
    for (const TensorEntry& tensor : header->tensors) {
      fuzz::Require(tensor.offset == end, "tensors lie one after another");
      uint64_t elements = 1;
      for (const uint64_t extent : tensor.shape) elements *= extent;
      const bool is_sized = tensor.type != ElementType::kOther;
      fuzz::Require(!is_sized || tensor.bytes == elements * SizeOf(tensor.type),
                    "a shape fills its bytes");
      end += tensor.bytes;
    }
    fuzz::Require(end == header->data_bytes && header->data_begin + end == file_bytes,
                  "the tensors are the file");
  }
  return 0;
}
