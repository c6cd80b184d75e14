// Calls to the daemon. Their errors say what to do next.
#ifndef GEMINID_TOOLS_GEMINICTL_DAEMON_DAEMON_CLIENT_H_
#define GEMINID_TOOLS_GEMINICTL_DAEMON_DAEMON_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "geminid/v1/admin.grpc.pb.h"
#include "geminid/v1/config.grpc.pb.h"
#include "geminid/v1/job.grpc.pb.h"

namespace geminid::ctl {

// OK if a process listens on the Unix socket at `path`; else UNAVAILABLE, PERMISSION_DENIED or
// INVALID_ARGUMENT. gRPC would report the same later, in less helpful words.
absl::Status ProbeSocket(const std::string& path);

// Only one thread may use it. Every call blocks for at most `timeout`. Besides the daemon's own
// errors, a call fails with UNAVAILABLE if the daemon exits and with DEADLINE_EXCEEDED if it does
// not answer.
class DaemonClient {
 public:
  static absl::StatusOr<std::unique_ptr<DaemonClient>> Connect(const std::string& socket,
                                                               absl::Duration timeout);

  absl::StatusOr<v1::Status> GetStatus();
  // A List call returns the whole list: it asks for one page after another.
  absl::StatusOr<v1::ListSessionsResponse> ListSessions();
  absl::StatusOr<v1::ListPoolsResponse> ListPools();
  // At most `limit` chunks: of one session, or of all sessions if `session` is 0.
  absl::StatusOr<v1::ListChunksResponse> ListChunks(uint64_t session, uint32_t limit);
  absl::StatusOr<v1::ExplainChunkResponse> ExplainChunk(uint64_t session, uint32_t chunk);
  // The trace for which the session last asked for a plan.
  absl::StatusOr<v1::TraceFile> GetTrace(uint64_t session);
  absl::StatusOr<v1::ShowConfigResponse> ShowConfig();
  absl::StatusOr<v1::ListJobsResponse> ListJobs();
  absl::StatusOr<v1::DrainResponse> Drain(bool undo);
  absl::StatusOr<v1::EvictJobResponse> EvictJob(const v1::EvictJobRequest& request);
  absl::StatusOr<v1::EndJobResponse> EndJob(const v1::EndJobRequest& request);
  absl::StatusOr<v1::ScaleRequest> ScaleJob(const v1::ScaleJobRequest& request);
  absl::StatusOr<v1::ScaleRequest> GetScale(uint64_t number);

 private:
  DaemonClient(std::string socket, const std::shared_ptr<grpc::Channel>& channel,
               absl::Duration timeout);

  template <typename Response, typename Stub, typename Request>
  absl::StatusOr<Response> Call(Stub* stub,
                                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request);

  // Asks for page after page and joins them; more(request, response) says whether to go on.
  template <typename Response, typename Request, typename More>
  absl::StatusOr<Response> CallForPages(grpc::Status (v1::AdminService::Stub::*method)(
                                            grpc::ClientContext*, const Request&, Response*),
                                        Request request, More more);

  const std::string socket_;
  const absl::Duration timeout_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
  std::unique_ptr<v1::ConfigService::Stub> config_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
};

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_DAEMON_DAEMON_CLIENT_H_
