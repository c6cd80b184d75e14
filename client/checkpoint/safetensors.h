// The safetensors format: 8 bytes with the length of a JSON header, the header, the tensors' bytes.
//
//   { "__metadata__": {"format": "pt"},
//     "wte.weight": {"dtype": "F32", "shape": [50257, 768], "data_offsets": [0, 154389504]} }
//
// Offsets count from the end of the header; tensors lie one after another without holes. Pure text
// and arithmetic; who reads and writes the bytes is in checkpoint_file.h. Source of the format:
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

// A header longer than this is refused, as the format's own readers do.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr size_t kLengthBytes = 8;

// kOther: of a tensor that is described and passed over, such as BOOL, I64 or F8_E4M3.
enum class ElementType : uint8_t {
  kFloat32,
  kBFloat16,
  kFloat16,
  kUint64,
  kUint32,
  kUint8,
  kOther
};

size_t SizeOf(ElementType type);     // in bytes; of kOther 0
const char* Name(ElementType type);  // as the header spells it

struct TensorEntry {
  std::string name;
  ElementType type = ElementType::kFloat32;
  std::vector<uint64_t> shape;
  uint64_t offset = 0;  // bytes from the start of the data
  uint64_t bytes = 0;
  std::string other_type{};  // the header's word for kOther

  uint64_t elements() const;
  std::string type_name() const { return type == ElementType::kOther ? other_type : Name(type); }
};

struct Header {
  std::vector<TensorEntry> tensors;  // by offset
  std::map<std::string, std::string> metadata;
  uint64_t data_begin = 0;  // of the file: where offsets count from
  uint64_t data_bytes = 0;

  const TensorEntry* Find(const std::string& name) const;
};

// Gives the tensors their offsets, in the order given, and says where the data begins: a multiple
// of 64. INVALID_ARGUMENT for two tensors of one name.
absl::StatusOr<Header> LayOut(std::vector<TensorEntry> tensors,
                              std::map<std::string, std::string> metadata);

// The first data_begin bytes of the file.
std::string Encode(const Header& header);

// How long the header is that begins with these kLengthBytes. DATA_LOSS if longer than
// kMaxHeaderBytes or than the file.
absl::StatusOr<uint64_t> HeaderLength(const std::string& first_bytes, uint64_t file_bytes);

// Reads the header's JSON. A tensor may have any dtype: whoever reads its values refuses those that
// are not computed in. DATA_LOSS says what is wrong: text that is no such header, a shape and
// offsets that disagree, holes, overlaps, or a file that is shorter or longer than its tensors.
absl::StatusOr<Header> Decode(const std::string& json, uint64_t file_bytes);

}  // namespace geminid::checkpoint

#endif  // GEMINID_CLIENT_CHECKPOINT_SAFETENSORS_H_
