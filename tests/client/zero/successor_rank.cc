// One rank of a run, as a process that dies, or stops, at a crash point.
//
//   successor_rank SOCKET RUN NAME RANK RESUME [kill|hold POINT COUNT]
//
// Rank 0 writes a line to standard output with the step from which it resumed (0: it began anew),
// then the bytes of every weight. Exit code 0; or 1 with an error on standard error.
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

#include "client/zero/basics/crash_points.h"
#include "geminid/connect.h"
#include "geminid/v1/job.grpc.pb.h"
#include "tests/client/zero/successor_runs.h"

namespace geminid::zero {
namespace {

std::string_view point;
std::atomic<int> left = 0;
bool holds = false;

void OnPoint(const char* name) {
  if (point != name || left.fetch_sub(1) != 1) return;
  if (!holds) ::kill(::getpid(), SIGKILL);
  // A process that waits for this one sees that it has stopped, and nothing can happen after that.
  for (;;) ::raise(SIGSTOP);
}

// Rank 0 evicts the job from its device in its third step. Any rank that has waited for a moment
// undoes that: of replacements, those that still have device memory do not wait.
void AddEviction(SyntheticRun* run) {
  const auto evict = [socket = run->socket, job = run->job](bool undo) {
    const auto stub = v1::JobService::NewStub(
        grpc::CreateChannel("unix:" + socket, grpc::InsecureChannelCredentials()));
    v1::EvictJobRequest request;
    request.set_job(job);
    request.set_undo(undo);
    v1::EvictJobResponse response;
    grpc::ClientContext context;
    const grpc::Status status = stub->EvictJob(&context, request, &response);
    return status.ok() ? absl::OkStatus() : absl::InternalError(status.error_message());
  };
  run->before_step = [evict](int of, int step) {
    return of == 0 && step == kEvictedStep ? evict(false) : absl::OkStatus();
  };
  run->admission = {.preemptible = true,
                    .on_wait = [evict](const std::string&) { return evict(true); }};
}

int Run(int argc, char** argv) {
  if (argc != 6 && argc != 9) return 2;
  SyntheticRun run = SuccessorRun(argv[3]);
  run.socket = argv[1];
  run.run = argv[2];
  const int rank = std::atoi(argv[4]);
  run.options.resume = std::string_view(argv[5]) == "1";
  if (std::string_view(argv[3]).starts_with(kEvicted)) AddEviction(&run);
  if (argc == 9) {
    holds = std::string_view(argv[6]) == "hold";
    point = argv[7];
    left = std::atoi(argv[8]);
    on_crash_point = OnPoint;
  }
  collectives::RankInfo info;
  info.rank = info.local_rank = rank;
  info.world_size = info.local_world_size = run.world_size;
  info.job = run.run;
  collectives::ConnectOptions connect;
  connect.timeout = connect.connect_timeout = absl::Seconds(60);
  auto communicator = collectives::Connect(info, connect);
  if (!communicator.ok()) {
    std::cerr << communicator.status() << "\n";
    return 1;
  }
  SyntheticResult result;
  const absl::Status status = TrainOneRank(run, rank, communicator->get(), &result);
  if (!status.ok()) {
    std::cerr << status << "\n";
    return 1;
  }
  std::printf("%zu\n", run.steps - result.steps.size());
  for (const std::vector<float>& weights : result.weights) {
    std::fwrite(weights.data(), sizeof(float), weights.size(), stdout);
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace geminid::zero

int main(int argc, char** argv) { return geminid::zero::Run(argc, argv); }
