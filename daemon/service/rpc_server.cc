#include "daemon/service/rpc_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <sys/stat.h>

#include <chrono>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/system_error.h"

namespace geminid::service {
namespace {

// A trace of a million uses is about 10 MiB.
constexpr int kMaxMessageBytes = 64 << 20;
constexpr int kMaxThreads = 64;
constexpr mode_t kNobodyElse = 0177;

void EnablePluginsOnce() {
  static const bool enabled = [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    return true;
  }();
  (void)enabled;
}

}  // namespace

std::string GrpcAddress(const std::string& path) {
  std::string address = "unix:";
  for (const char c : path) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '/' || c == '-' || c == '.' ||
        c == '_' || c == '~') {
      address += c;
    } else {
      absl::StrAppendFormat(&address, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return address;
}

RpcServer::RpcServer(const SettingsInForce* settings, const DaemonFacts& facts, Hub* hub,
                     std::function<void(shm::SessionId)> on_detached)
    : session_(hub, std::move(on_detached)),
      chunk_(hub),
      plan_(hub),
      memory_(hub),
      admin_(hub, facts),
      config_(settings) {}

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const SettingsInForce* settings, const DaemonFacts& facts, Hub* hub,
    std::function<void(shm::SessionId)> on_detached) {
  EnablePluginsOnce();
  std::unique_ptr<RpcServer> rpc(new RpcServer(settings, facts, hub, std::move(on_detached)));
  grpc::ServerBuilder builder;
  grpc::ResourceQuota quota("geminid");
  quota.SetMaxThreads(kMaxThreads);
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  // The path's own permissions are the protection.
  builder.AddListeningPort(GrpcAddress(facts.socket), grpc::InsecureServerCredentials());
  for (grpc::Service* service : std::initializer_list<grpc::Service*>{
           &rpc->session_, &rpc->chunk_, &rpc->plan_, &rpc->memory_, &rpc->admin_, &rpc->config_}) {
    builder.RegisterService(service);
  }
  const mode_t old_mask = ::umask(kNobodyElse);
  rpc->server_ = builder.BuildAndStart();
  ::umask(old_mask);
  if (rpc->server_ == nullptr) {
    return absl::InternalError(absl::StrCat("gRPC cannot listen on ", facts.socket));
  }
  if (::chmod(facts.socket.c_str(), settings->Get().socket_mode) != 0) {
    return base::SystemError(errno, "chmod", facts.socket);
  }
  return rpc;
}

RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()); }

void RpcServer::Drain() {
  if (server_ != nullptr) server_->GetHealthCheckService()->SetServingStatus(false);
}

void RpcServer::Shutdown(absl::Duration patience) {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(patience));
  server_->Wait();
  server_.reset();
}

}  // namespace geminid::service
