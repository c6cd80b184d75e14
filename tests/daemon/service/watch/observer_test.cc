// The metrics port and the Unix socket beside it, from a collector's point of view.
#include "daemon/service/watch/observer.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <thread>

#include "absl/strings/numbers.h"
#include "daemon/metrics/session_counters.h"
#include "daemon/os/unix_socket.h"
#include "daemon/service/entry/daemon.h"
#include "geminid/v1/chunk.grpc.pb.h"
#include "proto/shm/attach_messages.h"
#include "tests/base/temporary_folder.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/daemon_env/raw_client.h"

namespace geminid::service {
namespace {

using ::geminid::testing::DaemonEnv;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Ask(const base::UniqueFd& fd, const std::string& path) {
  const timeval patience = {30, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  const std::string request = "GET " + path + " HTTP/1.1\r\n\r\n";
  EXPECT_EQ(::write(fd.get(), request.data(), request.size()),
            static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t got; (got = ::read(fd.get(), buffer, sizeof(buffer))) > 0;) {
    answer.append(buffer, static_cast<size_t>(got));
  }
  return answer;
}

std::string AskSocket(const std::string& socket, const std::string& path) {
  const absl::StatusOr<base::UniqueFd> fd = os::ConnectUnix(SOCK_STREAM, socket);
  EXPECT_TRUE(fd.ok()) << fd.status();
  return fd.ok() ? Ask(*fd, path) : "";
}

uint16_t PortOf(const std::string& address) {
  uint32_t port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) << address;
  return static_cast<uint16_t>(port);
}

TEST(Observer, UnixSocket_AnswersWithTheModeOfTheOtherSockets) {
  DaemonEnv env;
  ASSERT_TRUE(env.Start().ok());
  EXPECT_EQ(env.daemon().metrics_socket(), env.socket() + ".http");
  struct stat socket = {};
  struct stat control = {};
  ASSERT_EQ(::stat(env.daemon().metrics_socket().c_str(), &socket), 0);
  ASSERT_EQ(::stat(env.socket().c_str(), &control), 0);
  EXPECT_EQ(socket.st_mode, control.st_mode);
  EXPECT_THAT(AskSocket(env.daemon().metrics_socket(), "/metrics"), HasSubstr("geminid_epoch 1\n"));
  EXPECT_THAT(AskSocket(env.daemon().metrics_socket(), "/livez"), StartsWith("HTTP/1.1 200 OK"));
  env.Stop();
  EXPECT_FALSE(std::filesystem::exists(env.socket() + ".http"));
}

TEST(Observer, SocketThatWasRemoved_IsNotReady) {
  DaemonEnv env;
  ASSERT_TRUE(env.Start().ok());
  const std::string page = env.daemon().metrics_socket();
  std::filesystem::remove(env.socket() + shm::kAttachSuffix);
  EXPECT_THAT(AskSocket(page, "/livez"), StartsWith("HTTP/1.1 200 OK"));
  for (const char* probe : {"/readyz", "/healthz"}) {
    const std::string answer = AskSocket(page, probe);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 503"));
    EXPECT_THAT(answer, HasSubstr(env.socket() + ".attach was removed"));
  }
}

TEST(Observer, Port_AnswersToo) {
  DaemonEnv env;
  ASSERT_TRUE(env.Start({.metrics_listen = "127.0.0.1:0"}).ok());
  base::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(PortOf(env.metrics_address()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_THAT(Ask(fd, "/metrics"), HasSubstr("geminid_epoch 1\n"));
}

double ThreadSeconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void AllocateOfEachKind(const geminid::testing::RawClient& client) {
  v1::AllocateChunksRequest request;
  for (int kind = 1; kind <= static_cast<int>(shm::ChunkKind::kGeneric); ++kind) {
    v1::ChunkSpec* const chunk = request.add_chunks();
    chunk->set_kind(static_cast<v1::ChunkKind>(kind));
    chunk->set_bytes(64);
    chunk->set_has_home(kind != static_cast<int>(shm::ChunkKind::kGatheredWeight));
  }
  v1::AllocateChunksResponse response;
  grpc::ClientContext context;
  client.Authenticate(&context);
  const grpc::Status status =
      v1::ChunkService::NewStub(client.channel())->Allocate(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
}

// The cost is reported in the thread's own time. The goal is at most 10 ms.
TEST(Observer, PageOf256Sessions_HasMemoryOfEach) {
  DaemonEnv env;
  geminid::testing::DaemonEnvOptions options;
  options.shares.calls_per_second = 1'000'000;
  options.shares.attaches_per_second = 1'000'000;
  options.shares.connections_per_second = 1'000'000;
  ASSERT_TRUE(env.Start(options).ok());
  std::vector<std::unique_ptr<geminid::testing::RawClient>> clients;
  for (size_t i = 0; i < metrics::kMaxSessionSeries; ++i) {
    absl::StatusOr<std::unique_ptr<geminid::testing::RawClient>> client =
        geminid::testing::RawClient::Attach(env.socket());
    ASSERT_TRUE(client.ok()) << client.status();
    ASSERT_NO_FATAL_FAILURE(AllocateOfEachKind(**client));
    clients.push_back(*std::move(client));
  }
  double least = 1;
  std::string page;
  for (int i = 0; i < 5; ++i) {
    const double before = ThreadSeconds();
    page = env.MetricsPage();
    least = std::min(least, ThreadSeconds() - before);
  }
  size_t sessions = 0;
  for (size_t at = 0; (at = page.find("\ngeminid_session_bytes{", at)) != std::string::npos; ++at) {
    ++sessions;
  }
  EXPECT_GE(sessions, metrics::kMaxSessionSeries);
  RecordProperty("page_bytes", static_cast<int>(page.size()));
  RecordProperty("microseconds", static_cast<int>(least * 1e6));
}

TEST(Observer, Root_IsAPageThatLoadsNothingFromElsewhere) {
  DaemonEnv env;
  ASSERT_TRUE(env.Start().ok());
  const std::string answer = AskSocket(env.daemon().metrics_socket(), "/");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n"));
  EXPECT_THAT(answer, HasSubstr("</html>\n"));
  EXPECT_THAT(answer, HasSubstr("default-src 'none'"));
  // The page has one address, which is a name: the namespace of SVG elements.
  std::string rest = answer;
  const std::string svg = "http://www.w3.org/2000/svg";
  rest.erase(rest.find(svg), svg.size());
  EXPECT_EQ(rest.find("://"), std::string::npos);
  EXPECT_EQ(rest.find("innerHTML"), std::string::npos);  // names of jobs are never markup
}

class TakenPort : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(other_.Start({.metrics_listen = "127.0.0.1:0"}).ok());
    options_ = {.host = "127.0.0.1",
                .port = PortOf(other_.metrics_address()),
                .socket = folder_.path() + "/x.http",
                .socket_mode = 0600};
  }
  std::unique_ptr<Monitor> NewMonitor() {
    return std::make_unique<Monitor>(&other_.daemon().hub(), &other_.daemon().vitals(), "1");
  }

  base::TemporaryFolder folder_;
  DaemonEnv other_;
  ObserverOptions options_;
};

TEST_F(TakenPort, ThatWasAskedFor_IsAnError) {
  EXPECT_EQ(Observer::Start(options_, NewMonitor()).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(TakenPort, ThatNobodyAskedFor_LeavesTheSocket) {
  options_.port_required = false;
  const auto observer = Observer::Start(options_, NewMonitor());
  ASSERT_TRUE(observer.ok()) << observer.status();
  EXPECT_EQ((*observer)->address(), "");
  // The other daemon's thread may still be starting, and is then not ready.
  while (!other_.daemon().vitals().serving.load()) std::this_thread::yield();
  EXPECT_THAT(AskSocket(options_.socket, "/readyz"), HasSubstr("ok\n"));
}

}  // namespace
}  // namespace geminid::service
