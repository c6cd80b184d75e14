// Connections that have not authenticated, and ask gRPC for everything that it can do.
#include "daemon/service/entry/http2_gate.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "daemon/os/unix_socket.h"
#include "daemon/service/entry/daemon.h"
#include "geminid/v1/admin.grpc.pb.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/daemon_env/raw_client.h"
#include "tests/daemon_env/raw_http2.h"

namespace geminid::service {
namespace {

using namespace ::geminid::testing;  // NOLINT(google-build-using-namespace): frames and their types

constexpr size_t kMiB = size_t{1} << 20;
constexpr int kPatienceMilliseconds = 300;
constexpr char kStatus[] = "/geminid.v1.AdminService/GetStatus";

class Http2 : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(env_.Start().ok()); }
  base::UniqueFd Connect(const std::string& beginning) {
    absl::StatusOr<base::UniqueFd> fd = os::ConnectUnix(SOCK_STREAM, env_.socket());
    EXPECT_TRUE(fd.ok()) << fd.status();
    if (!fd.ok()) return {};
    EXPECT_EQ(SendWithoutEnd(*fd, beginning, beginning.size(), 5000).bytes, beginning.size());
    return *std::move(fd);
  }
  bool IsServed() {
    grpc::ClientContext context;
    v1::Status status;
    return v1::AdminService::NewStub(NewChannel(env_.socket()))
        ->GetStatus(&context, v1::GetStatusRequest(), &status)
        .ok();
  }

  DaemonEnv env_;
};

// gRPC buffers the beginning of a header until its end arrives.
TEST_F(Http2, HeadersWithoutEnd_CloseTheirConnection) {
  const base::UniqueFd fd = Connect(
      Http2Beginning() + Frame(FrameType::kHeaders, 0, 1, std::string("\x00\x01x\x7f\xff\xff\xff\x7f", 8)));
  const Taken taken = SendWithoutEnd(
      fd, Frame(FrameType::kContinuation, 0, 1, std::string(16384, 'x')), 64 * kMiB,
      kPatienceMilliseconds);
  EXPECT_TRUE(taken.closed);
  EXPECT_LT(taken.bytes, kMiB);
  EXPECT_TRUE(IsServed());
}

TEST_F(Http2, StreamsThatAreResetAtOnce_AreReadAsFastAsCallsMayBeGivenUp) {
  const base::UniqueFd fd = Connect(Http2Beginning());
  std::string text;
  size_t pairs = 0;
  for (uint32_t stream = 1; pairs < 20'000; stream += 2, ++pairs) {
    text += Frame(FrameType::kHeaders, kEndHeaders, stream, CallHeaders(kStatus));
    text += Frame(FrameType::kResetStream, 0, stream, std::string(4, '\0'));
  }
  const auto begin = std::chrono::steady_clock::now();
  const Taken taken = SendWithoutEnd(fd, text, text.size(), kPatienceMilliseconds);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  // Bytes in socket buffers do not count.
  const double most = Http2Budget::kResets.burst + 100 * seconds + 4000;
  EXPECT_LT(static_cast<double>(taken.bytes) * static_cast<double>(pairs) /
                static_cast<double>(text.size()),
            most);
  EXPECT_FALSE(taken.closed);
}

// gRPC buffers kilobytes for each ping until the client reads.
TEST_F(Http2, PingsWithoutEnd_CloseTheirConnection) {
  const base::UniqueFd fd = Connect(Http2Beginning());
  const Taken taken = SendWithoutEnd(fd, Frame(FrameType::kPing, 0, 0, "12345678"), 16 * kMiB,
                                     kPatienceMilliseconds);
  EXPECT_TRUE(taken.closed);
  EXPECT_LT(taken.bytes, 2 * kMiB);
  EXPECT_TRUE(IsServed());
}

// Each SETTINGS frame is answered, and gRPC would buffer the answers of a client that reads
// nothing.
TEST_F(Http2, SettingsOfAClientThatReadsNothing_AreNotReadAnyMore) {
  DaemonEnvOptions options;
  options.shares.calls_per_second = 1'000'000;  // so that the rate of frames delays nothing
  env_.Stop();
  ASSERT_TRUE(env_.Start(options).ok());
  const base::UniqueFd fd = Connect(Http2Beginning());
  const Taken taken =
      SendWithoutEnd(fd, Frame(FrameType::kSettings, 0, 0, ""), 16 * kMiB, kPatienceMilliseconds);
  EXPECT_LT(taken.bytes, 2 * kMiB);
  EXPECT_TRUE(IsServed());
}

TEST_F(Http2, WhatIsNoHttp2_IsClosed) {
  const base::UniqueFd fd = Connect("GET / HTTP/1.1\r\n\r\n");
  // gRPC's own first frames may come before the end.
  RawMessage message;
  for (int i = 0; i < 10 && !message.end; ++i) message = Receive(fd);
  EXPECT_TRUE(message.end);
}

TEST_F(Http2, ClientThatHasGone_CountsNoMore) {
  DaemonEnvOptions options;
  options.shares.connections = 2;
  env_.Stop();
  ASSERT_TRUE(env_.Start(options).ok());
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(IsServed()) << i;
}

// The daemon ends even if clients read no answers.
TEST_F(Http2, ConnectionsThatReadNothing_DoNotKeepTheDaemonFromEnding) {
  std::vector<base::UniqueFd> open;
  for (int i = 0; i < 8; ++i) {
    std::string text = Http2Beginning();
    for (uint32_t stream = 1; stream < 40; stream += 2) {
      text += Frame(FrameType::kHeaders, kEndHeaders, stream, CallHeaders(kStatus));
      text += Frame(FrameType::kData, stream % 4 == 1 ? kEndStream : 0, stream,
                    std::string(5, '\0'));
    }
    open.push_back(Connect(text));
    (void)SendWithoutEnd(open.back(), Frame(FrameType::kSettings, 0, 0, ""), 4 * kMiB,
                         kPatienceMilliseconds);
  }
  const auto begin = std::chrono::steady_clock::now();
  env_.Stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

}  // namespace
}  // namespace geminid::service
