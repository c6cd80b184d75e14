#include "daemon/service/entry/library_logs.h"

#include <google/protobuf/stubs/common.h>
#include <grpcpp/version_info.h>

#include <string>

#include "daemon/service/tenants/tenant_log.h"

// Later versions have no functions for it: they log through Abseil.
#define GEMINID_PROTOBUF_HAS_LOG_HANDLER (GOOGLE_PROTOBUF_VERSION < 4022000)
#define GEMINID_GRPC_HAS_LOG_FUNCTION (GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR < 65)

#if GEMINID_PROTOBUF_HAS_LOG_HANDLER
#include <google/protobuf/stubs/logging.h>
#endif
#if GEMINID_GRPC_HAS_LOG_FUNCTION
#include <grpc/support/log.h>
#endif
#if !GEMINID_PROTOBUF_HAS_LOG_HANDLER || !GEMINID_GRPC_HAS_LOG_FUNCTION
#include "absl/base/log_severity.h"
#include "absl/log/globals.h"
#include "absl/log/initialize.h"
#include "absl/log/log_entry.h"
#include "absl/log/log_sink.h"
#include "absl/log/log_sink_registry.h"
#endif

namespace geminid::service {
namespace {

// The libraries' messages are for their developers, and a client can cause them: so few of them are
// logged.
[[maybe_unused]] void Write(const std::string& library, std::string message, std::string file) {
  // The libraries' threads may outlive static objects.
  static TenantLog* const log = new TenantLog(new Limits(config::TenantShares{}));
  log->Write("grpc", os::LogLevel::kDebug, library,
             {{"message", std::move(message)}, {"file", std::move(file)}});
}

#if GEMINID_GRPC_HAS_LOG_FUNCTION
void QuietGrpc() {
  gpr_set_log_function([](gpr_log_func_args* args) { Write("gRPC", args->message, args->file); });
}
#else
void QuietGrpc() {}
#endif

#if GEMINID_PROTOBUF_HAS_LOG_HANDLER
// A text that is not UTF-8 is refused like any other bad request, not complained of.
void QuietProtobuf() { google::protobuf::SetLogHandler(nullptr); }
#else
void QuietProtobuf() {}
#endif

#if GEMINID_PROTOBUF_HAS_LOG_HANDLER && GEMINID_GRPC_HAS_LOG_FUNCTION
void QuietAbseil() {}
#else
class Sink : public absl::LogSink {
 public:
  void Send(const absl::LogEntry& entry) override {
    Write("a library", std::string(entry.text_message()), std::string(entry.source_filename()));
  }
};

void QuietAbseil() {
  // Before it is initialized, Abseil writes everything to standard error.
  absl::InitializeLog();
  absl::SetStderrThreshold(absl::LogSeverityAtLeast::kFatal);
  absl::AddLogSink(new Sink);
}
#endif

}  // namespace

void QuietLibraries() {
  static const bool done = [] {
    QuietGrpc();
    QuietProtobuf();
    QuietAbseil();
    return true;
  }();
  (void)done;
}

}  // namespace geminid::service
