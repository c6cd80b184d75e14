// The safetensors format: 8 bytes with the length of a JSON header, the header, the tensors' bytes.
//
//   { "__metadata__": {"format": "pt"},
//     "wte.weight": {"dtype": "F32", "shape": [50257, 768], "data_offsets": [0, 154389504]} }
//
// Offsets count from the end of the header. Tensors lie one after another without holes. Pure text
// and arithmetic; tensor_file.h reads and writes the bytes. Source of the format:
// https://huggingface.co/docs/safetensors.
#ifndef GEMINID_CLIENT_CHECKPOINT_SAFETENSORS_H_
#define GEMINID_CLIENT_CHECKPOINT_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace geminid::checkpoint {

// Longer headers are refused, as the format's own readers do.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr size_t kLengthBytes = 8;
// The entry of a header that is no tensor.
inline constexpr char kMetadataKey[] = "__metadata__";

// kOther: a tensor that is described but not read, such as one of BOOL, I64 or F8_E4M3.
enum class ElementType : uint8_t {
  kFloat32,
  kBFloat16,
  kFloat16,
  kUint64,
  kUint32,
  kUint8,
  kOther
};

size_t SizeOf(ElementType type);     // in bytes; 0 for kOther
const char* Name(ElementType type);  // as the header spells it

struct TensorEntry {
  std::string name;
  ElementType type = ElementType::kFloat32;
  std::vector<uint64_t> shape;
  uint64_t offset = 0;  // bytes from the start of the data
  uint64_t bytes = 0;
  std::string other_type{};  // the header's name of the type, for kOther

  uint64_t elements() const;
  std::string type_name() const { return type == ElementType::kOther ? other_type : Name(type); }
};

struct Header {
  std::vector<TensorEntry> tensors;  // by offset
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;  // offset in the file from which tensors' offsets count
  uint64_t data_bytes = 0;

  const TensorEntry* Find(const std::string& name) const;
};

// Sets the tensors' offsets, in the given order, and the beginning of the data, a multiple of 64.
// INVALID_ARGUMENT if two tensors have one name.
absl::StatusOr<Header> LayOut(std::vector<TensorEntry> tensors,
                              std::map<std::string, std::string> metadata);

// The first data_begin bytes of the file.
std::string Encode(const Header& header);

// The length of the header that begins with these kLengthBytes. DATA_LOSS if it is longer than
// kMaxHeaderBytes or than the file.
absl::StatusOr<uint64_t> HeaderLength(const std::string& first_bytes, uint64_t file_bytes);

// Parses the header's JSON. A tensor may have any dtype: the reader of its values refuses
// unsupported ones. DATA_LOSS says what is wrong: text that is no such header, a shape that does
// not fit its offsets, holes, overlaps, or a file that is too short or too long.
absl::StatusOr<Header> Decode(const std::string& json, uint64_t file_bytes);

}  // namespace geminid::checkpoint

#endif  // GEMINID_CLIENT_CHECKPOINT_SAFETENSORS_H_
