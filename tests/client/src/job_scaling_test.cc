// A rank's calls about the number of ranks, to real servers whose answers the test sets.
#include "client/src/job_scaling.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "geminid/v1/job.grpc.pb.h"
#include "tests/base/temporary_folder.h"

namespace geminid {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

// Answers EndJob with the result of a function.
class Server final : public v1::JobService::Service {
 public:
  using Answer = std::function<grpc::Status(const v1::EndJobRequest&)>;

  Server(const std::string& socket, Answer answer) : answer_(std::move(answer)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~Server() override { server_->Shutdown(std::chrono::system_clock::now()); }

  grpc::Status EndJob(grpc::ServerContext*, const v1::EndJobRequest* request,
                      v1::EndJobResponse*) override {
    return answer_(*request);
  }

 private:
  const Answer answer_;
  std::unique_ptr<grpc::Server> server_;
};

class JobScalingTest : public ::testing::Test {
 protected:
  const base::TemporaryFolder folder_;
  const std::string socket_ = folder_ / "socket";
};

TEST_F(JobScalingTest, EndRun_WhileTheDaemonRestarts_WaitsForTheNext) {
  auto ended = std::async(std::launch::async, [this] {
    return JobScaling(socket_, kPatience).EndRun("train", "0123.0");
  });
  std::string run;
  const Server server(socket_, [&](const v1::EndJobRequest& request) {
    run = request.run();
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "there is no such job");
  });
  const absl::Status status = ended.get();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(run, "0123.0");
}

TEST_F(JobScalingTest, EndRun_CutOffByADaemonThatEnds_IsSaidAgain) {
  int calls = 0;
  const Server server(socket_, [&](const v1::EndJobRequest&) {
    constexpr grpc::StatusCode kEnds[] = {grpc::StatusCode::CANCELLED,
                                          grpc::StatusCode::UNAVAILABLE};
    return calls < 2 ? grpc::Status(kEnds[calls++], "the daemon ends") : grpc::Status::OK;
  });
  const absl::Status status = JobScaling(socket_, kPatience).EndRun("train", "0123.0");
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(calls, 2);
}

TEST_F(JobScalingTest, EndRun_ThatTheDaemonRefuses_Fails) {
  const Server server(socket_, [&](const v1::EndJobRequest&) {
    return grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "it is another tenant's");
  });
  EXPECT_TRUE(absl::IsPermissionDenied(JobScaling(socket_, kPatience).EndRun("train", "0123.0")));
}

}  // namespace
}  // namespace geminid
