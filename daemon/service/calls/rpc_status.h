// Converts absl::Status to gRPC's status, whose codes have equal numbers.
#ifndef GEMINID_DAEMON_SERVICE_CALLS_RPC_STATUS_H_
#define GEMINID_DAEMON_SERVICE_CALLS_RPC_STATUS_H_

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"

namespace geminid::service {

inline grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_CALLS_RPC_STATUS_H_
