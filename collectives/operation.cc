#include "collectives/operation.h"

#include <string.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace geminid::collectives {

const char* Name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kFloat16:
      return "float16";
    case DType::kFloat64:
      return "float64";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kUint8:
      return "uint8";
  }
  return "unknown type";
}

const char* Name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
  }
  return "unknown reduction";
}

const char* Name(OpKind kind) {
  switch (kind) {
    case OpKind::kAllGather:
      return "AllGather";
    case OpKind::kReduceScatter:
      return "ReduceScatter";
    case OpKind::kAllReduce:
      return "AllReduce";
    case OpKind::kBroadcast:
      return "Broadcast";
    case OpKind::kAllToAll:
      return "AllToAll";
    case OpKind::kSend:
      return "Send";
    case OpKind::kReceive:
      return "Receive";
    case OpKind::kBarrier:
      return "Barrier";
    case OpKind::kReduce:
      return "Reduce";
    case OpKind::kGather:
      return "Gather";
  }
  return "unknown operation";
}

namespace {

std::string DescribeKind(const Operation& operation) {
  if (operation.kind == OpKind::kBarrier) return "Barrier";
  std::string text =
      absl::StrFormat("%s of %d %s", Name(operation.kind), operation.count, Name(operation.dtype));
  switch (operation.kind) {
    case OpKind::kReduceScatter:
    case OpKind::kAllReduce:
      absl::StrAppendFormat(&text, ", op %s, scale %g", Name(operation.reduce), operation.scale);
      break;
    case OpKind::kBroadcast:
      absl::StrAppend(&text, " from rank ", operation.root_or_tag);
      break;
    case OpKind::kAllGather:
    case OpKind::kAllToAll:
      absl::StrAppend(&text, " per rank");
      break;
    case OpKind::kSend:
    case OpKind::kReceive:
      absl::StrAppend(&text, " with tag ", operation.root_or_tag);
      break;
    case OpKind::kReduce:
      absl::StrAppendFormat(&text, ", op %s, scale %g, to rank %d", Name(operation.reduce),
                            operation.scale, operation.root_or_tag);
      break;
    case OpKind::kGather:
      absl::StrAppend(&text, " per rank to rank ", operation.root_or_tag);
      break;
    case OpKind::kBarrier:
      break;
  }
  return text;
}

}  // namespace

// The label may come from another process, so it may lack a terminator.
std::string Describe(const Operation& operation) {
  const std::string label(operation.label.data(),
                          strnlen(operation.label.data(), operation.label.size()));
  return label.empty() ? DescribeKind(operation)
                       : absl::StrCat(DescribeKind(operation), " for ", label);
}

}  // namespace geminid::collectives
