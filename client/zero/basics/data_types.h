// The types of weights and gradients as collectives and messages name them.
#ifndef GEMINID_CLIENT_ZERO_BASICS_DATA_TYPES_H_
#define GEMINID_CLIENT_ZERO_BASICS_DATA_TYPES_H_

#include "client/zero/basics/layout.h"
#include "geminid/buffer.h"
#include "geminid/zero.h"

namespace geminid::zero {

inline DataType TypeOf(const Parameter& parameter, const Options& options) {
  return parameter.data_type.value_or(options.data_type);
}

inline collectives::DType ToDType(DataType type) {
  switch (type) {
    case DataType::kBFloat16:
      return collectives::DType::kBFloat16;
    case DataType::kFloat32:
      return collectives::DType::kFloat32;
    case DataType::kFloat16:
      return collectives::DType::kFloat16;
    case DataType::kInt8:  // ranks exchange the bytes of these types and never sum them
    case DataType::kUint8:
      break;
  }
  return collectives::DType::kUint8;
}
inline collectives::DType DTypeOf(const ChunkShape& chunk) { return ToDType(chunk.type); }

inline const char* Name(DataType type) {
  switch (type) {
    case DataType::kBFloat16:
      return "bf16";
    case DataType::kFloat32:
      return "fp32";
    case DataType::kFloat16:
      return "fp16";
    case DataType::kInt8:
      return "int8";
    case DataType::kUint8:
      return "uint8";
  }
  return nullptr;  // unknown type
}

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_BASICS_DATA_TYPES_H_
