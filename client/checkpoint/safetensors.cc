#include "client/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/json.h"
#include "base/json_writer.h"
#include "base/pages.h"
#include "base/status_macros.h"

namespace geminid::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

using base::JsonValue;

constexpr uint64_t kDataAlignment = 64;

struct TypeRow {
  ElementType type;
  const char* name;
  size_t bytes;
};
constexpr std::array kTypes = {
    TypeRow{ElementType::kFloat32, "F32", 4}, TypeRow{ElementType::kBFloat16, "BF16", 2},
    TypeRow{ElementType::kFloat16, "F16", 2}, TypeRow{ElementType::kUint64, "U64", 8},
    TypeRow{ElementType::kUint32, "U32", 4},  TypeRow{ElementType::kUint8, "U8", 1},
    TypeRow{ElementType::kOther, "other", 0},
};

// The format's other dtypes, for the sizes of tensors that are passed over. A tensor of a dtype
// that is newer than this table is passed over too, and its size is believed.
struct OtherType {
  const char* name;
  uint64_t bits;
};
constexpr std::array kOtherTypes = {
    OtherType{"BOOL", 8},       OtherType{"I8", 8},           OtherType{"F8_E4M3", 8},
    OtherType{"F8_E5M2", 8},    OtherType{"F8_E8M0", 8},      OtherType{"F8_E4M3FNUZ", 8},
    OtherType{"I16", 16},       OtherType{"F8_E5M2FNUZ", 8},  OtherType{"U16", 16},
    OtherType{"I32", 32},       OtherType{"I64", 64},         OtherType{"F64", 64},
    OtherType{"C64", 64},       OtherType{"F4", 4},           OtherType{"F6_E2M3", 6},
    OtherType{"F6_E3M2", 6},
};
constexpr uint64_t kBitsPerByte = 8;
constexpr size_t kTypeNameMax = 16;  // of a message

const TypeRow& RowOf(ElementType type) { return kTypes[static_cast<size_t>(type)]; }

std::string ToJson(const Header& header) {
  base::JsonWriter json;
  json.BeginObject();
  json.Key(kMetadataKey).BeginObject();
  for (const auto& [key, value] : header.metadata) json.Key(key).Value(value);
  json.EndObject();
  for (const TensorEntry& tensor : header.tensors) {
    json.Key(tensor.name).BeginObject();
    json.Key("dtype").Value(Name(tensor.type));
    json.Key("shape").BeginArray();
    for (uint64_t dimension : tensor.shape) json.Value(dimension);
    json.EndArray();
    json.Key("data_offsets").BeginArray();
    json.Value(tensor.offset).Value(tensor.offset + tensor.bytes).EndArray();
    json.EndObject();
  }
  json.EndObject();
  return json.text();
}

absl::Status Bad(const std::string& tensor, const std::string& problem) {
  return absl::DataLossError(absl::StrCat("tensor '", tensor, "' ", problem));
}

const JsonValue* Member(const JsonValue& object, const std::string& key) {
  for (const JsonValue::Member& member : object.members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

// An array of whole numbers, or false.
bool ReadNumbers(const JsonValue* value, std::vector<uint64_t>* numbers) {
  if (value == nullptr || value->type != JsonValue::Type::kArray) return false;
  for (const JsonValue& item : value->items) {
    uint64_t number = 0;
    const bool whole =
        item.type == JsonValue::Type::kNumber && absl::SimpleAtoi(item.text, &number);
    if (!whole) return false;
    numbers->push_back(number);
  }
  return true;
}

// `unit` times the elements of this shape, or false when that does not fit 64 bits.
bool Multiply(const std::vector<uint64_t>& shape, uint64_t unit, uint64_t* product) {
  *product = unit;
  for (uint64_t dimension : shape) {
    if (__builtin_mul_overflow(*product, dimension, product)) return false;
  }
  return true;
}

// Whether a tensor of a dtype that is passed over can have as many bytes as it says.
bool IsSizeOfOther(const TensorEntry& tensor) {
  const auto row = std::find_if(kOtherTypes.begin(), kOtherTypes.end(), [&](const OtherType& known) {
    return tensor.other_type == known.name;
  });
  if (row == kOtherTypes.end()) return true;
  uint64_t bits = 0;
  return Multiply(tensor.shape, row->bits, &bits) && bits % kBitsPerByte == 0 &&
         bits / kBitsPerByte == tensor.bytes;
}

bool IsSizeRight(const TensorEntry& tensor) {
  if (tensor.type == ElementType::kOther) return IsSizeOfOther(tensor);
  uint64_t expected = 0;
  return Multiply(tensor.shape, SizeOf(tensor.type), &expected) && expected == tensor.bytes;
}

absl::StatusOr<TensorEntry> ReadTensor(const std::string& name, const JsonValue& value) {
  TensorEntry tensor;
  tensor.name = name;
  const JsonValue* type = Member(value, "dtype");
  if (type == nullptr || type->type != JsonValue::Type::kString) {
    return Bad(name, "has no dtype");
  }
  const auto row = std::find_if(kTypes.begin(), kTypes.end(),
                                [&](const TypeRow& known) { return type->text == known.name; });
  tensor.type = row == kTypes.end() ? ElementType::kOther : row->type;
  if (tensor.type == ElementType::kOther) tensor.other_type = type->text.substr(0, kTypeNameMax);
  std::vector<uint64_t> offsets;
  const bool read = ReadNumbers(Member(value, "shape"), &tensor.shape) &&
                    ReadNumbers(Member(value, "data_offsets"), &offsets);
  if (!read || offsets.size() != 2 || offsets[1] < offsets[0]) {
    return Bad(name, "has no shape and data_offsets of whole numbers");
  }
  tensor.offset = offsets[0];
  tensor.bytes = offsets[1] - offsets[0];
  if (!IsSizeRight(tensor)) {
    return Bad(name, absl::StrCat("has ", base::FormatBytes(tensor.bytes),
                                  " of data, which does not match its shape and dtype"));
  }
  return tensor;
}

// Tensors lie one after another from 0 to the end of the file.
absl::Status CheckPlaces(const Header& header, uint64_t file_bytes) {
  uint64_t at = 0;
  for (const TensorEntry& tensor : header.tensors) {
    if (tensor.offset != at) {
      return Bad(tensor.name, absl::StrCat("begins at byte ", tensor.offset,
                                           " of the data; the tensor before it ends at ", at));
    }
    at += tensor.bytes;
  }
  const uint64_t expected = header.data_begin + at;
  if (expected != file_bytes) {
    return absl::DataLossError(
        absl::StrCat("it has ", file_bytes, " bytes; its header describes ", expected,
                     file_bytes < expected ? ": the file was truncated" : ""));
  }
  return absl::OkStatus();
}

}  // namespace

size_t SizeOf(ElementType type) { return RowOf(type).bytes; }

const char* Name(ElementType type) { return RowOf(type).name; }

uint64_t TensorEntry::elements() const {
  uint64_t elements = 0;
  return Multiply(shape, 1, &elements) ? elements : 0;
}

const TensorEntry* Header::Find(const std::string& name) const {
  for (const TensorEntry& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

absl::StatusOr<Header> LayOut(std::vector<TensorEntry> tensors,
                              std::map<std::string, std::string> metadata) {
  Header header;
  header.metadata = std::move(metadata);
  std::set<std::string> names = {kMetadataKey};
  for (TensorEntry& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("two tensors of one file are called '", tensor.name, "'"));
    }
    if (!Multiply(tensor.shape, SizeOf(tensor.type), &tensor.bytes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", tensor.name, "' is larger than a file can be"));
    }
    tensor.offset = header.data_bytes;
    header.data_bytes += tensor.bytes;
  }
  header.tensors = std::move(tensors);
  const uint64_t used = kLengthBytes + ToJson(header).size();
  header.data_begin = base::RoundUp(used, kDataAlignment);
  return header;
}

std::string Encode(const Header& header) {
  std::string json = ToJson(header);
  json.resize(header.data_begin - kLengthBytes, ' ');
  const uint64_t length = json.size();
  std::string bytes(kLengthBytes, '\0');
  std::memcpy(bytes.data(), &length, kLengthBytes);
  return bytes + json;
}

absl::StatusOr<uint64_t> HeaderLength(const std::string& first_bytes, uint64_t file_bytes) {
  uint64_t length = 0;
  if (first_bytes.size() < kLengthBytes) {
    return absl::DataLossError("it is too short for a safetensors file");
  }
  std::memcpy(&length, first_bytes.data(), kLengthBytes);
  if (length > kMaxHeaderBytes || length > file_bytes - kLengthBytes) {
    return absl::DataLossError(absl::StrCat(
        "it is not a safetensors file, or was truncated: its first bytes announce a header of ",
        length, " bytes"));
  }
  return length;
}

absl::StatusOr<Header> Decode(const std::string& json, uint64_t file_bytes) {
  JsonValue root;
  base::JsonError error;
  if (!base::ParsePythonJson(json, &root, &error)) {
    return absl::DataLossError(absl::StrCat("its header is not JSON: line ", error.position.line,
                                            ", column ", error.position.column, ": ",
                                            error.problem));
  }
  if (root.type != JsonValue::Type::kObject) {
    return absl::DataLossError("its header is not a JSON object");
  }
  Header header;
  header.data_begin = kLengthBytes + json.size();
  for (const JsonValue::Member& member : root.members) {
    if (member.key == kMetadataKey) {
      for (const JsonValue::Member& entry : member.value.members) {
        header.metadata[entry.key] = entry.value.text;
      }
      continue;
    }
    GEMINID_ASSIGN_OR_RETURN(TensorEntry tensor, ReadTensor(member.key, member.value));
    header.tensors.push_back(std::move(tensor));
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorEntry& a, const TensorEntry& b) {
                     return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
                   });
  GEMINID_RETURN_IF_ERROR(CheckPlaces(header, file_bytes));
  for (const TensorEntry& tensor : header.tensors) header.data_bytes += tensor.bytes;
  return header;
}

}  // namespace geminid::checkpoint
