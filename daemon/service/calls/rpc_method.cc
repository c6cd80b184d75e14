#include "daemon/service/calls/rpc_method.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

namespace geminid::service {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

class ItemCounter {
 public:
  ItemCounter(google::protobuf::io::CodedInputStream* in, uint64_t most) : in_(in), most_(most) {}

  // Counts up to the current limit. The recursion ends because no type contains itself.
  absl::Status Count(const Descriptor* type) {
    while (const uint32_t tag = in_->ReadTag()) {
      const FieldDescriptor* const field =
          type->FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
      if (absl::Status status = Take(tag, field); !status.ok()) return status;
    }
    return in_->ConsumedEntireMessage() ? absl::OkStatus() : Malformed();
  }

 private:
  static absl::Status Malformed() {
    return absl::InvalidArgumentError("the request is not a message of this method");
  }

  absl::Status Take(uint32_t tag, const FieldDescriptor* field) {
    if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      // Groups belong to an older protocol, and Geminid has none.
      const auto type = WireFormatLite::GetTagWireType(tag);
      const bool group = type == WireFormatLite::WIRETYPE_START_GROUP ||
                         type == WireFormatLite::WIRETYPE_END_GROUP;
      return !group && WireFormatLite::SkipField(in_, tag) ? absl::OkStatus() : Malformed();
    }
    uint32_t bytes = 0;
    if (!in_->ReadVarint32(&bytes) || bytes > INT32_MAX) return Malformed();
    const bool is_message =
        field != nullptr && field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    const bool is_text = field != nullptr && field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    if ((is_message || is_text) && ++count_ > most_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a request with more than ", most_, " items; divide it into several"));
    }
    if (!is_message) return in_->Skip(static_cast<int>(bytes)) ? absl::OkStatus() : Malformed();
    const auto outer = in_->PushLimit(static_cast<int>(bytes));
    if (in_->BytesUntilLimit() < static_cast<int>(bytes)) return Malformed();
    absl::Status status = Count(field->message_type());
    in_->PopLimit(outer);
    return status;
  }

  google::protobuf::io::CodedInputStream* const in_;
  const uint64_t most_;
  uint64_t count_ = 0;
};

}  // namespace

absl::Status CheckItems(const Descriptor* type, grpc::ByteBuffer* message, uint64_t most) {
  grpc::ProtoBufferReader reader(message);
  google::protobuf::io::CodedInputStream in(&reader);
  return ItemCounter(&in, most).Count(type);
}

}  // namespace geminid::service
