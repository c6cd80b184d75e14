// The control plane as a table: every method with its name, who may call it, and its bounds.
//
// A request stays bytes until its caller is known and its size is checked.
#ifndef GEMINID_DAEMON_SERVICE_CALLS_RPC_METHOD_H_
#define GEMINID_DAEMON_SERVICE_CALLS_RPC_METHOD_H_

#include <google/protobuf/message.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>

#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/service/sessions/session_hub.h"
#include "daemon/service/tenants/identity.h"

namespace geminid::service {

// The caller of a method. `session` is set if the method needs a token.
struct Caller {
  Identity identity;
  SessionPtr session;

  // Whether the caller may see the contents of a session of that tenant: chunks, traces, plans.
  bool MaySee(const std::string& tenant) const {
    return identity.is_operator || identity.tenant == tenant;
  }
};

struct RpcBounds {
  size_t bytes = 4096;  // of the request
  // The most messages and texts within the request. In memory each is far larger than the two bytes
  // that it may take on the wire.
  uint64_t items = 16;
};

struct RpcMethod {
  std::string path;  // "/geminid.v1.ChunkService/Allocate"
  bool needs_token = false;
  bool is_long = false;     // it allocates or frees memory, or plans: not on gRPC's own threads
  bool is_listing = false;  // it builds many messages under the hub's mutex
  RpcBounds bounds;
  std::function<absl::Status(const Caller& caller, grpc::ByteBuffer* request,
                             grpc::ByteBuffer* response)>
      serve;
};

// INVALID_ARGUMENT if the bytes are no message of this type. RESOURCE_EXHAUSTED if the message has
// more than `most` items. Builds no message.
absl::Status CheckItems(const google::protobuf::Descriptor* type, grpc::ByteBuffer* message,
                        uint64_t most);

// Makes `serve`, which takes messages, the method's function from bytes to bytes.
template <typename Request, typename Response, typename Method>
void ServeWith(RpcMethod* method, Method serve) {
  method->serve = [serve = std::move(serve), path = method->path, items = method->bounds.items](
                      const Caller& caller, grpc::ByteBuffer* bytes, grpc::ByteBuffer* answer) {
    absl::Status good = CheckItems(Request::descriptor(), bytes, items);
    Request request;
    if (good.ok() && !grpc::SerializationTraits<Request>::Deserialize(bytes, &request).ok()) {
      good = absl::InvalidArgumentError("the request is not a message of this method");
    }
    if (!good.ok()) return absl::Status(good.code(), absl::StrCat(path, ": ", good.message()));
    Response response;
    if (absl::Status status = serve(caller, request, &response); !status.ok()) return status;
    bool owned = false;
    if (!grpc::SerializationTraits<Response>::Serialize(response, answer, &owned).ok()) {
      return absl::InternalError("the answer cannot be written");
    }
    return absl::OkStatus();
  };
}

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_CALLS_RPC_METHOD_H_
