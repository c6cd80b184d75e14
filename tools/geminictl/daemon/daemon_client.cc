#include "tools/geminictl/daemon/daemon_client.h"

#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "base/unique_fd.h"
#include "daemon/os/unix_socket.h"
#include "daemon/service/entry/rpc_server.h"
#include "proto/rpc/deadline.h"
#include "proto/rpc/grpc_threads.h"

namespace geminid::ctl {
namespace {

// A trace may have 16 MiB; gRPC's own limit is 4.
constexpr int kMaxMessageBytes = 64 << 20;
constexpr int kFirstBackoffMs = 20;  // between attempts to connect; gRPC's own begin with a second

constexpr char kHowToReach[] =
    "start the daemon with 'geminid --socket PATH', or name the socket of a running one with "
    "--socket or GEMINID_SOCKET; 'geminictl doctor' looks at the machine";

absl::Status ConnectError(int error, const std::string& path) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::UnavailableError(
          absl::StrCat("no daemon: there is no socket ", path, "; ", kHowToReach));
    case ECONNREFUSED: {
      struct stat info = {};
      if (::stat(path.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode)) {
        return absl::UnavailableError(
            absl::StrCat("no daemon: ", path, " is not a socket; ", kHowToReach));
      }
      return absl::UnavailableError(absl::StrCat("no daemon: nobody listens on ", path,
                                                 ", so the daemon that made it has ended; ",
                                                 kHowToReach));
    }
    case EPROTOTYPE:
      return absl::InvalidArgumentError(absl::StrCat(
          path,
          " is a socket of another type; give the daemon's gRPC socket, whose name does not "
          "end in .attach"));
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(absl::StrCat(
          "you may not connect to ", path,
          "; run as the owner of the socket or in its group ('ls -l' shows both), or have the "
          "daemon's socket_mode changed"));
    default:
      return base::SystemError(error, "connect", path);
  }
}

absl::Status CallError(const grpc::Status& status, const std::string& socket,
                       absl::Duration timeout) {
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  const std::string& message = status.error_message();
  switch (code) {
    case absl::StatusCode::kUnavailable:
      return absl::UnavailableError(absl::StrCat(
          "the connection to ", socket, " ended while the daemon was asked (", message,
          "): the daemon has ended, it has no descriptor left, or this is another of its sockets; ",
          kHowToReach));
    case absl::StatusCode::kDeadlineExceeded:
      return absl::DeadlineExceededError(absl::StrCat(
          "the daemon on ", socket, " did not answer within ", absl::FormatDuration(timeout),
          "; see whether it is stopped or starved of processor time, or allow more "
          "with --timeout"));
    case absl::StatusCode::kUnimplemented:
      return absl::UnimplementedError(
          absl::StrCat("the daemon on ", socket, " does not know this call (", message,
                       "); install the same release of geminid and geminictl"));
    default:
      return absl::Status(code, message);
  }
}

}  // namespace

absl::Status ProbeSocket(const std::string& path) {
  if (path.empty() || path.size() > os::kMaxSocketPath) {
    return absl::InvalidArgumentError(absl::StrCat("the path of a socket has 1 to ",
                                                   os::kMaxSocketPath, " bytes; '", path, "' has ",
                                                   path.size(), "; choose another --socket"));
  }
  const base::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return base::SystemError(errno, "socket", path);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const int result = base::RetryOnEintr([&] {
    return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  });
  return result == 0 ? absl::OkStatus() : ConnectError(errno, path);
}

absl::StatusOr<std::unique_ptr<DaemonClient>> DaemonClient::Connect(const std::string& socket,
                                                                    absl::Duration timeout) {
  if (absl::Status status = ProbeSocket(socket); !status.ok()) return status;
  // Probes for the threads that gRPC needs. Later connections share these threads.
  static const absl::Status has_threads = base::ProbeThreads(rpc::GrpcThreads());
  if (!has_threads.ok()) return has_threads;
  if (absl::Status has = base::ProbeDescriptors(rpc::kGrpcDescriptors); !has.ok()) return has;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstBackoffMs);
  // Otherwise gRPC would share a connection, and its backoff, with others to the same address.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const std::shared_ptr<grpc::Channel> channel = grpc::CreateCustomChannel(
      service::GrpcAddress(socket), grpc::InsecureChannelCredentials(), arguments);
  // The socket exists: a connection that does not fit into its queue is retried. If there is still
  // no connection, the first call reports it.
  (void)channel->WaitForConnected(rpc::DeadlineIn(timeout));
  return std::unique_ptr<DaemonClient>(new DaemonClient(socket, channel, timeout));
}

DaemonClient::DaemonClient(std::string socket, const std::shared_ptr<grpc::Channel>& channel,
                           absl::Duration timeout)
    : socket_(std::move(socket)), timeout_(timeout) {
  admin_ = v1::AdminService::NewStub(channel);
  config_ = v1::ConfigService::NewStub(channel);
  jobs_ = v1::JobService::NewStub(channel);
}

template <typename Response, typename Stub, typename Request>
absl::StatusOr<Response> DaemonClient::Call(Stub* stub,
                                            grpc::Status (Stub::*method)(grpc::ClientContext*,
                                                                         const Request&, Response*),
                                            const Request& request) {
  grpc::ClientContext context;
  context.set_deadline(rpc::DeadlineIn(timeout_));
  Response response;
  const grpc::Status status = (stub->*method)(&context, request, &response);
  if (!status.ok()) return CallError(status, socket_, timeout_);
  return response;
}

absl::StatusOr<v1::Status> DaemonClient::GetStatus() {
  return Call(admin_.get(), &v1::AdminService::Stub::GetStatus, v1::GetStatusRequest());
}

template <typename Response, typename Request, typename More>
absl::StatusOr<Response> DaemonClient::CallForPages(
    grpc::Status (v1::AdminService::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
    Request request, More more) {
  Response all;
  do {
    GEMINID_ASSIGN_OR_RETURN(const Response page, Call(admin_.get(), method, request));
    all.MergeFrom(page);
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && more(&request, all));
  all.clear_next_page_token();
  return all;
}

absl::StatusOr<v1::ListSessionsResponse> DaemonClient::ListSessions() {
  return CallForPages(&v1::AdminService::Stub::ListSessions, v1::ListSessionsRequest(),
                      [](auto*, const auto&) { return true; });
}

absl::StatusOr<v1::ListPoolsResponse> DaemonClient::ListPools() {
  return CallForPages(&v1::AdminService::Stub::ListPools, v1::ListPoolsRequest(),
                      [](auto*, const auto&) { return true; });
}

absl::StatusOr<v1::ListChunksResponse> DaemonClient::ListChunks(uint64_t session, uint32_t limit) {
  v1::ListChunksRequest request;
  request.set_session(session);
  request.set_limit(limit);
  return CallForPages(&v1::AdminService::Stub::ListChunks, request,
                      [limit](v1::ListChunksRequest* next, const v1::ListChunksResponse& so_far) {
                        next->set_limit(limit - static_cast<uint32_t>(so_far.chunks_size()));
                        return next->limit() > 0;
                      });
}

absl::StatusOr<v1::ExplainChunkResponse> DaemonClient::ExplainChunk(uint64_t session,
                                                                    uint32_t chunk) {
  v1::ExplainChunkRequest request;
  request.set_session(session);
  request.set_chunk(chunk);
  return Call(admin_.get(), &v1::AdminService::Stub::ExplainChunk, request);
}

absl::StatusOr<v1::TraceFile> DaemonClient::GetTrace(uint64_t session) {
  v1::GetTraceRequest request;
  request.set_session(session);
  return Call(admin_.get(), &v1::AdminService::Stub::GetTrace, request);
}

absl::StatusOr<v1::ShowConfigResponse> DaemonClient::ShowConfig() {
  return Call(config_.get(), &v1::ConfigService::Stub::Show, v1::ShowConfigRequest());
}

absl::StatusOr<v1::ListJobsResponse> DaemonClient::ListJobs() {
  return Call(jobs_.get(), &v1::JobService::Stub::ListJobs, v1::ListJobsRequest());
}

absl::StatusOr<v1::DrainResponse> DaemonClient::Drain(bool undo) {
  v1::DrainRequest request;
  request.set_undo(undo);
  return Call(jobs_.get(), &v1::JobService::Stub::Drain, request);
}

absl::StatusOr<v1::EvictJobResponse> DaemonClient::EvictJob(const v1::EvictJobRequest& request) {
  return Call(jobs_.get(), &v1::JobService::Stub::EvictJob, request);
}

absl::StatusOr<v1::EndJobResponse> DaemonClient::EndJob(const v1::EndJobRequest& request) {
  return Call(jobs_.get(), &v1::JobService::Stub::EndJob, request);
}

absl::StatusOr<v1::ScaleRequest> DaemonClient::ScaleJob(const v1::ScaleJobRequest& request) {
  return Call(jobs_.get(), &v1::JobService::Stub::ScaleJob, request);
}

absl::StatusOr<v1::ScaleRequest> DaemonClient::GetScale(uint64_t number) {
  v1::GetScaleRequest request;
  request.set_number(number);
  return Call(jobs_.get(), &v1::JobService::Stub::GetScale, request);
}

}  // namespace geminid::ctl
